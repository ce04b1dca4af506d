"""Jobs and logs as the commands show them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from ddpjob.cli.app import app
from ddpjob_core.api.resources import JOBS, PODS
from tests.apiserver.client.program import DIGITS, Program, jobs
from tests.apiserver.controlplane import Client, ControlPlane, wait_for

pytestmark = pytest.mark.timeout(120)


def test_jobs_are_listed_as_a_table_as_json_and_over_all_namespaces(
    program: Program, control_plane: ControlPlane
) -> None:
    other = control_plane.new_namespace()
    for command in ("status", "top"):
        assert program.json(command) == []
    program("run", "--no-follow", "-f", str(DIGITS))
    Program(control_plane.admin_kubeconfig, other)("run", "--no-follow", "-f", str(DIGITS))
    assert [job["name"] for job in program.json("status")] == ["digits"]
    assert {other} < {job["namespace"] for job in program.json("top", "-A")}
    table = program("top", "--once").stdout.split("\n")
    assert table[0].split()[:3] == ["NAME", "STATE", "NODES"]
    assert table[1].split()[:2] == ["digits", "Pending"]
    assert "NAMESPACE" in program("status", "-A").stdout


@pytest.mark.parametrize("command", ["status", "why", "logs", "suspend", "resume", "delete", "doctor"])
def test_a_job_that_does_not_exist_is_exit_code_4(program: Program, command: str) -> None:
    done = program(command, "nobody")
    assert done.exit_code == 4
    assert "there is no DDPJob nobody in namespace" in done.stderr


def test_a_log_without_pods_is_reported(program: Program) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    done = program("logs", "digits")
    assert done.exit_code == 4
    assert "digits has no pods" in done.stderr


def test_deleting_without_a_terminal_needs_yes(program: Program, admin: Client, namespace: str) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    done = program("delete", "digits")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert jobs(admin, namespace) == ["digits"]


def test_the_shell_completes_names_of_jobs(control_plane: ControlPlane, namespace: str, program: Program) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    words = f"ddpjob why -n {namespace} di"
    variables = {
        "_DDPJOB_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "KUBECONFIG": str(control_plane.admin_kubeconfig),
    }
    done = CliRunner().invoke(app, [], env=variables, prog_name="ddpjob")
    assert done.stdout.split() == ["digits"]


def create_pod(admin: Client, namespace: str, **spec: object) -> None:
    """The pod of node 0 of the job `digits`."""
    uid = admin.get(JOBS.path(namespace, "digits"))["metadata"]["uid"]
    labels = {"ddpjob.dev/uid": uid, "ddpjob.dev/attempt": "0", "ddpjob.dev/ordinal": "0"}
    metadata = {"name": "digits-a0-0", "namespace": namespace, "labels": labels}
    containers = [{"name": "trainer", "image": "i"}]
    admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}})


def test_a_log_that_no_node_gives_is_an_error_and_not_an_empty_one(
    namespace: str, admin: Client, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    # No such node answers.
    create_pod(admin, namespace, nodeName="nowhere")
    done = program("logs", "digits")
    assert done.exit_code != 0
    assert "cannot read the log of digits-a0-0" in done.stderr


def test_a_followed_log_waits_for_pods_and_for_their_nodes(
    namespace: str, admin: Client, program: Program, control_plane: ControlPlane
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    job, pod = JOBS.path(namespace, "digits"), PODS.path(namespace, "digits-a0-0")
    begun = control_plane.audit_size

    def empty_logs() -> int:
        entries = control_plane.audit(namespace, None, begun)
        ended = [entry for entry in entries if entry["stage"] == "ResponseComplete"]
        return sum(f"{pod}/log" in entry["requestURI"] and entry["responseStatus"]["code"] == 204 for entry in ended)

    with ThreadPoolExecutor() as background:
        following = background.submit(program, "logs", "digits", "--follow")
        create_pod(admin, namespace)
        created = {"attempt": 0, "podsCreated": True, "procsPerNode": 1}
        admin.request("PATCH", f"{job}/status", {"status": created}, content_type="application/merge-patch+json")
        try:
            # The API server answers at once, and with nothing, for a pod without a node.
            wait_for(lambda: empty_logs() > 1, "the log to be asked for again")
            assert not following.done()
        finally:
            admin.request("DELETE", pod)
        done = following.result(timeout=30)
    assert done.exit_code == 0
    assert "there is no output yet" in done.stderr
