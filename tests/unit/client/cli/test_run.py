"""`ddpjob run` as a person types it, up to where a cluster would be asked."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ddpjob.cli.app import app
from ddpjob.views.exit_codes import ExitCode

CONFIG_MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with train.py and job.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDPJOB_IMAGE", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    (tmp_path / "train.py").write_text("print('hello')\n")
    write_job(tmp_path / "job.yaml")
    return tmp_path


def write_job(path: Path, *, metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> None:
    job = {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": "digits", **(metadata or {})},
        "spec": {"nodes": 2, "trainer": {"image": "i", "script": "train.py"}, **(spec or {})},
    }
    path.write_text(yaml.safe_dump_all([CONFIG_MAP, job]))


def run(*arguments: str) -> Result:
    """Run it; whatever it does, it raises nothing of its own."""
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-f", "job.yaml", "train.py"), "SCRIPT has no effect: -f takes everything from the file"),
        (("-f", "job.yaml", "--module", "a.b"), "--module has no effect: -f takes everything from the file"),
        (("-f", "job.yaml", "--image", "i"), "--image has no effect: -f takes"),
        (("-f", "job.yaml", "--name", "n"), "--name has no effect: -f takes"),
        (("-f", "job.yaml", "-e", "A=1"), "--env has no effect: -f takes"),
        (("-f", "job.yaml", "--nodes", "1"), "--nodes has no effect: -f takes"),
        (("-f", "job.yaml", "--procs-per-node", "auto"), "--procs-per-node has no effect: -f takes"),
        (("-f", "job.yaml", "--nodes", "4", "--name", "n"), "--name, --nodes have no effect: -f takes"),
        (("--local", "-f", "job.yaml", "--nodes", "4"), "--nodes has no effect: -f takes"),
        (
            ("--allow-host-path", "/srv", "-f", "job.yaml"),
            "--allow-host-path has no effect: a cluster decides who may have a hostPath",
        ),
        (("--home", "h", "-f", "job.yaml"), "--home has no effect: only --local keeps files on this machine"),
        (("--no-follow", "--logs", "-f", "job.yaml"), "--logs has no effect: --no-follow returns before"),
        (("--local", "--logs", "train.py"), "--logs has no effect: --local shows all logs"),
        (("--local", "--image", "i", "train.py"), "--image has no effect: --local uses the Python of this"),
        (("--local", "-o", "json", "train.py"), "--output has no effect: --local prints"),
        (
            ("--local", "--no-follow", "train.py"),
            "--no-follow has no effect: --local runs on this machine until the job ends",
        ),
        (
            ("--local", "--kubeconfig", "k", "train.py"),
            "--kubeconfig has no effect: --local runs on this machine until the job ends",
        ),
        (("--local", "--context", "c", "--logs", "train.py"), "--logs has no effect: --local shows all logs"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused_by_its_name(
    folder: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert told in done.stderr
    assert list(folder.glob("h*")) == []


def test_the_image_of_the_environment_stands_back_for_that_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPJOB_IMAGE", "other")
    monkeypatch.setenv("DDPJOB_HOME", str(folder / "home"))
    done = run("-f", "job.yaml", "--dry-run", "-o", "json")
    assert done.exit_code == ExitCode.OK, done.output
    assert json.loads(done.stdout)["items"][-1]["spec"]["trainer"]["image"] == "i"


def test_a_dry_run_takes_the_options_of_the_run_that_it_stands_for(folder: Path) -> None:
    assert folder.exists()
    for options in (("--logs", "--context", "c"), ("--local", "--home", "h", "-o", "json"), ("--follow", "--local")):
        assert run("--dry-run", *options, "-f", "job.yaml").exit_code == ExitCode.OK


def test_a_dry_run_on_this_machine_checks_the_job(folder: Path) -> None:
    write_job(folder / "job.yaml", metadata={"name": "Digits"})
    done = run("--local", "--dry-run", "-f", "job.yaml")
    assert done.exit_code == ExitCode.USAGE, done.output
    assert "metadata.name: must be a DNS-1035 label" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("place", ["--local", "--image=i"])
@pytest.mark.parametrize(("options", "namespace"), [((), None), (("-n", "team"), "team")])
def test_a_dry_run_prints_every_object_in_the_namespace_that_was_asked_for(
    folder: Path, place: str, options: tuple[str, ...], namespace: str | None
) -> None:
    assert folder.exists()
    for program in ([place, "train.py"], ["--local"] * (place == "--local") + ["-f", "job.yaml"]):
        done = run("--dry-run", *options, *program)
        assert done.exit_code == ExitCode.OK, done.output
        assert {each["metadata"].get("namespace") for each in yaml.safe_load_all(done.stdout)} == {namespace}


def test_a_dry_run_prints_what_a_job_needs_in_the_namespace_that_the_job_names(folder: Path) -> None:
    write_job(folder / "job.yaml", metadata={"namespace": "ours"})
    done = run("--dry-run", "-f", "job.yaml")
    assert [each["metadata"]["namespace"] for each in yaml.safe_load_all(done.stdout)] == ["ours", "ours"]


@pytest.mark.parametrize("options", [("--dry-run",), ("--local", "--home", "h"), ("--local", "--dry-run")])
def test_a_namespace_other_than_the_file_s_is_refused_before_anything_is_made(
    folder: Path, options: tuple[str, ...]
) -> None:
    write_job(folder / "job.yaml", metadata={"namespace": "ours"})
    done = run(*options, "-n", "team", "-f", "job.yaml")
    assert done.exit_code == ExitCode.USAGE, done.output
    assert "job.yaml:11: metadata.namespace: is ours, but -n says team" in done.stderr
    assert not (folder / "h").exists()


def test_rendering_too_refuses_a_namespace_other_than_the_file_s(folder: Path) -> None:
    write_job(folder / "job.yaml", metadata={"namespace": "ours"})
    done = CliRunner().invoke(app, ["render", "-n", "team", "-f", "job.yaml"])
    assert done.exit_code == ExitCode.USAGE, done.output
    assert "metadata.namespace: is ours, but -n says team" in done.stderr
