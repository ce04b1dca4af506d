"""Which cluster and namespace a command uses, and what its user may do there."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ddpjob.cli.app import app
from tests.apiserver.client.program import DIGITS, Program, jobs
from tests.apiserver.controlplane import Client, ControlPlane, wait_for
from tests.apiserver.rights import CHANGE_JOBS, READ_JOBS, grant

pytestmark = pytest.mark.timeout(120)


def test_a_user_without_permission_learns_what_is_missing_with_exit_code_3(
    control_plane: ControlPlane, namespace: str
) -> None:
    user = Program(control_plane.new_user(namespace), namespace)
    done = user("run", "--no-follow", "-f", str(DIGITS))
    assert done.exit_code == 3
    assert "cannot create resource" in done.stderr
    assert "ddpjob doctor" in done.stderr
    checks = {check["name"]: check for check in user.json("doctor")}
    assert checks["Permissions"]["outcome"] == "FAIL"
    assert "create ddpjobs" in checks["Permissions"]["message"]
    assert checks["Nodes"]["outcome"] == "SKIP"


def test_a_user_who_may_create_jobs_but_no_pods_learns_that_and_where_the_rights_are_listed(
    control_plane: ControlPlane, namespace: str
) -> None:
    user = Program(control_plane.new_user(namespace), namespace)
    grant(control_plane, namespace, "nobody", CHANGE_JOBS)

    def refused() -> str:
        done = user("run", "--no-follow", "-f", str(DIGITS))
        assert done.exit_code == 3
        return done.stderr if "cannot create resource" not in done.stderr else ""

    said = wait_for(refused, "the Role to hold")
    assert f"may not create pods in namespace {namespace}: ask for the permission to" in said
    assert "docs/security.md" in said
    permissions = {check["name"]: check for check in user.json("doctor")}["Permissions"]
    assert "create pods (every job: the policy ddpjob-pods)" in permissions["message"]


def test_the_doctor_finds_an_installation_without_an_operator(program: Program) -> None:
    done = program("doctor")
    assert done.exit_code == 1
    checks = {check["name"]: check for check in program.json("doctor")}
    assert checks["API server"]["outcome"] == checks["DDPJob API"]["outcome"] == "OK"
    assert checks["Operator"]["outcome"] == "FAIL"
    assert "kubectl apply -k manifests/base" in checks["Operator"]["remedy"]
    assert checks["Permissions"]["outcome"] == "OK"


def test_a_cluster_that_does_not_answer_is_exit_code_3(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    broken = tmp_path / "kubeconfig"
    broken.write_text(yaml.safe_dump(config))
    nowhere = Program(broken, namespace)
    for arguments in (("status",), ("run", "-f", str(DIGITS)), ("doctor",)):
        done = nowhere(*arguments)
        assert done.exit_code == 3, done.output
        assert "https://127.0.0.1:1 cannot be reached" in done.output


@pytest.mark.parametrize(
    ("content", "arguments", "code", "text"),
    [
        (None, (), 3, "does not exist"),
        ("a: [", (), 2, "cannot be used"),
        ("{}", (), 2, "cannot be used"),
        ("contexts: [{name: a, context: {cluster: c}}]", ("--context", "b"), 2, "choose one of: a"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, arguments: tuple[str, ...], code: int, text: str
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    done = Program(path, "default")("status", *arguments)
    assert done.exit_code == code, done.output
    assert str(path) in done.stderr
    assert text in done.stderr


def test_the_namespace_comes_from_the_context_unless_one_is_named(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    config = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    own = {"name": "own", "context": {**config["contexts"][0]["context"], "namespace": namespace}}
    config["contexts"].append(own)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))

    def listed(*options: str) -> list[str]:
        done = CliRunner().invoke(app, ["status", "-o", "json", *options], env={"KUBECONFIG": str(path)})
        return [job["namespace"] for job in json.loads(done.stdout)]

    assert listed("--context", "own") == [namespace]
    assert listed("--context", "own", "-n", "default") == []
    assert listed() == []


def test_a_user_who_may_only_read_jobs_still_gets_their_status_and_most_of_the_story(
    control_plane: ControlPlane, namespace: str, admin: Client, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    grant(control_plane, namespace, "nobody", READ_JOBS)
    reader = Program(control_plane.new_user(namespace), namespace)
    assert reader("status", "digits").exit_code == 0
    story = reader("why", "digits")
    assert story.exit_code == 0
    assert "digits is Pending" in story.stdout
    assert "continuing without events" in story.stderr
    assert "continuing without pods" in story.stderr
    for refused in (reader("logs", "digits"), reader("suspend", "digits"), reader("delete", "digits", "--yes")):
        assert refused.exit_code == 3
        assert "forbidden" in refused.stderr
    assert jobs(admin, namespace) == ["digits"]
