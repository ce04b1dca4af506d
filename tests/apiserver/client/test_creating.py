"""What `ddpjob run` and `render` create, refuse and leave behind."""

from pathlib import Path

import pytest
import yaml

from tests.apiserver.client.program import DIGITS, JOB, ROOT, SCRIPTED, Program, config_maps, jobs
from tests.apiserver.controlplane import Client

pytestmark = pytest.mark.timeout(120)


CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {a: b}\n---\n"
# Only the API server's rules refuse it: the rendezvous' port among those of the metrics.
REFUSED = "rendezvous: {port: 9401}"


def test_what_only_the_api_server_refuses_is_reported_with_its_line_and_leaves_nothing_behind(
    program: Program, admin: Client, namespace: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(CONFIG_MAP + JOB.format(name="refused", more=REFUSED))
    done = program("run", "-f", str(manifest))
    assert done.exit_code == 2
    assert f"{manifest}:16: spec.rendezvous.port: " in done.stderr
    assert "choose another" in done.stderr
    assert config_maps(admin, namespace) == {}
    assert jobs(admin, namespace) == []


def test_what_was_made_before_something_was_refused_is_removed_again(
    program: Program, admin: Client, namespace: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(CONFIG_MAP + CONFIG_MAP.replace("other", "No_Name") + JOB.format(name="fine", more=""))
    done = program("run", "-f", str(manifest))
    assert done.exit_code == 2
    assert f"{manifest}:8: metadata.name: " in done.stderr
    assert config_maps(admin, namespace) == {}
    assert jobs(admin, namespace) == []


def test_a_script_whose_config_map_cannot_be_made_leaves_no_job(
    program: Program, admin: Client, namespace: str, script: Path
) -> None:
    taken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "line-program", "namespace": namespace}}
    admin.create(taken)
    done = program("run", "--no-follow", "--name", "line", "--image", "i", str(script))
    assert done.exit_code == 2
    assert "line-program" in done.stderr
    assert jobs(admin, namespace) == []


def test_a_name_that_is_taken_is_reported_with_the_job_that_has_it(program: Program) -> None:
    assert program("run", "--no-follow", "-f", str(DIGITS)).exit_code == 0
    done = program("run", "--no-follow", "-f", str(DIGITS))
    assert done.exit_code == 2
    assert "DDPJob digits already exists and is Pending" in done.stderr
    assert "ddpjob delete digits" in done.stderr


def test_the_other_objects_in_the_file_of_a_job_are_created_with_it_and_updated_the_next_time(
    program: Program, admin: Client, namespace: str, tmp_path: Path
) -> None:
    assert program("run", "--no-follow", "-f", str(SCRIPTED)).exit_code == 0
    assert "train.py" in config_maps(admin, namespace)["line"]["data"]
    changed = tmp_path / "changed.yaml"
    text = SCRIPTED.read_text().replace("range(200)", "range(300)")
    changed.write_text(text.replace("  name: line\nspec", "  name: two\nspec"))
    assert program("run", "--no-follow", "-f", str(changed)).exit_code == 0
    assert "range(300)" in config_maps(admin, namespace)["line"]["data"]["train.py"]
    assert jobs(admin, namespace) == ["line", "two"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_dry_run_prints_is_what_kubectl_would_apply(
    program: Program, admin: Client, namespace: str, script: Path, form: str
) -> None:
    done = program("run", "--dry-run", "-o", form, "--name", "dry", "--image", "i", "-e", "A=1", str(script), "--flag")
    assert done.exit_code == 0
    manifests = list(yaml.safe_load_all(done.stdout))
    if form == "json":
        manifests = manifests[0]["items"]
    assert [manifest["kind"] for manifest in manifests] == ["ConfigMap", "DDPJob"]
    for manifest in manifests:
        manifest["metadata"].setdefault("namespace", namespace)
        admin.create(manifest, dryRun="All")
    assert jobs(admin, namespace) == []


@pytest.mark.parametrize("example", ["digits", "checkpoint", "script", "message-passing-mpirun"])
def test_the_api_server_accepts_what_is_rendered(program: Program, example: str) -> None:
    done = program("render", "--dry-run", "server", "-f", str(ROOT / f"manifests/examples/{example}.yaml"))
    assert done.exit_code == 0, done.stderr
    assert "refused" not in done.stderr
    assert {"Service", "ConfigMap", "Pod"} <= {manifest["kind"] for manifest in yaml.safe_load_all(done.stdout)}


def test_a_field_of_a_pod_that_the_api_server_does_not_know_is_found_by_rendering(
    program: Program, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(JOB.format(name="wrong", more="template: {spec: {nodeSelektor: {a: b}}}"))
    assert program("render", "-f", str(manifest)).exit_code == 0
    done = program("render", "--dry-run", "server", "-f", str(manifest))
    assert done.exit_code == 2
    assert "Pod wrong-a0-0: refused" in done.stderr
    assert "nodeSelektor" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "nothing to run"),
        (("nothere.py",), "nothere.py cannot be read"),
        (("-f", "nothere.yaml"), "nothere.yaml cannot be read"),
        (("-f", str(DIGITS), "--image", "i"), "-f takes everything from the file"),
        (("--module", "a.b"), "--image is missing"),
        (("--nodes", "0", "x.py"), "greater than or equal to 1"),
        (("--nosuch",), "No such option"),
    ],
)
def test_an_option_that_cannot_be_is_exit_code_2(program: Program, arguments: tuple[str, ...], text: str) -> None:
    done = program("run", *arguments)
    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", True),
        ("restart: {maxRestarts: 0, maxProcessRestarts: 0}", False),
        ("checkpoint: {claimName: c}", False),
    ],
)
def test_it_is_said_once_that_a_program_without_checkpoints_starts_over(
    program: Program, tmp_path: Path, more: str, *, said: bool
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(JOB.format(name="plain", more=more))
    done = program("run", "--no-follow", "-f", str(manifest))
    assert done.exit_code == 0
    assert done.stderr.count("runs again from its start") == int(said)
