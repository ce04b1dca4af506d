"""Jobs and logs as the commands show them."""

import pytest
from typer.testing import CliRunner

from ddpjob.cli.app import app
from ddpjob_core.api.resources import JOBS
from tests.apiserver.client.program import DIGITS, Program, jobs
from tests.apiserver.controlplane import Client, ControlPlane

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


def test_a_log_that_no_node_gives_is_an_error_and_not_an_empty_one(
    namespace: str, admin: Client, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    uid = admin.get(JOBS.path(namespace, "digits"))["metadata"]["uid"]
    labels = {"ddpjob.dev/uid": uid, "ddpjob.dev/attempt": "0", "ddpjob.dev/ordinal": "0"}
    admin.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "digits-a0-0", "namespace": namespace, "labels": labels},
            # No such node answers.
            "spec": {"nodeName": "nowhere", "containers": [{"name": "trainer", "image": "i"}]},
        }
    )
    done = program("logs", "digits")
    assert done.exit_code != 0
    assert "cannot read the log of digits-a0-0" in done.stderr
