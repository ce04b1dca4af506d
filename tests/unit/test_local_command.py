"""`ddpjob run --local` as a person types it, up to where torch would be needed."""

import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ddpjob.cli.app import app
from ddpjob.errors import ExitCode

runner = CliRunner()


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    trainer = {"image": "i", "command": [sys.executable, "-c", "print('trained')"]}
    file = tmp_path / "job.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "ddpjob.dev/v1alpha1",
                "kind": "DDPJob",
                "metadata": {"name": "digits"},
                "spec": {"nodes": 2, "procsPerNode": 1, "trainer": trainer},
            }
        )
    )
    return file


def test_a_job_of_a_file_runs_to_its_end(job_file: Path, tmp_path: Path) -> None:
    done = runner.invoke(app, ["run", "--local", "--home", str(tmp_path / "home"), "-f", str(job_file)])
    assert done.exit_code == ExitCode.OK, done.output
    assert sorted(done.stdout.splitlines()) == ["node 0 | trained", "node 1 | trained"]
    assert "digits starts on this machine: 2 nodes with 1 process each" in done.stderr
    assert "Succeeded: 2 nodes exited with 0" in done.stderr


def test_a_program_that_fails_exits_with_1_and_is_not_tried_again(tmp_path: Path) -> None:
    done = runner.invoke(
        app, ["run", "--local", "--home", str(tmp_path / "home"), "--module", "no_such_module_anywhere"]
    )
    assert done.exit_code == ExitCode.FAILED, done.output
    assert "no module named no_such_module_anywhere: check spec.trainer.module" in done.stderr
    assert "Restarting" not in done.stderr


def test_a_script_runs_where_it_lies_under_a_name_that_stays(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    shown = runner.invoke(app, ["run", "--local", "--dry-run", "--nodes", "2", str(tmp_path / "train.py"), "50", "10"])
    assert shown.exit_code == ExitCode.OK, shown.output
    job = yaml.safe_load(shown.stdout)
    assert job["metadata"]["name"] == "train-local"
    assert job["spec"]["trainer"]["script"] == str(tmp_path / "train.py")
    assert job["spec"]["trainer"]["args"] == ["50", "10"]
    assert job["spec"]["checkpoint"] == {"claimName": "train-local"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--local"], "nothing to run"),
        (["run", "--local", "nowhere.py"], "nowhere.py is not there"),
        (["run", "--local", "--context", "x", "train.py"], "--local runs here and to the end"),
        (["run", "--local", "-f", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(arguments: list[str], told: str) -> None:
    done = runner.invoke(app, arguments)
    assert done.exit_code == ExitCode.USAGE
    assert told in done.stderr
    assert "Traceback" not in done.output


def test_what_cannot_be_had_without_a_cluster_is_told_before_anything_starts(job_file: Path, tmp_path: Path) -> None:
    job = yaml.safe_load(job_file.read_text())
    job["spec"]["trainer"]["envFrom"] = [{"secretRef": {"name": "token"}}]
    job_file.write_text(yaml.safe_dump(job))
    done = runner.invoke(app, ["run", "--local", "--home", str(tmp_path / "home"), "-f", str(job_file)])
    assert done.exit_code == ExitCode.USAGE, done.output
    assert "spec.trainer.envFrom: token is kept in a cluster" in done.stderr
