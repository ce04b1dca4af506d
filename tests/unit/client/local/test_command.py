"""`ddpjob run --local` as a person types it, up to where torch would be needed."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ddpjob.cli.app import app
from ddpjob.local.command import stop_signals
from ddpjob.views.exit_codes import ExitCode

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


def test_of_what_a_run_writes_only_the_locks_of_ports_are_outside_its_home(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, work = tmp_path / "tmp", tmp_path / "work"
    for folder in (elsewhere, work):
        folder.mkdir()
    (work / "t.py").write_text("import os; print(os.environ['DDPJOB_LOCAL'])")
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(work)
    job = yaml.safe_load(job_file.read_text())
    job["spec"].update(trainer={"image": "i", "script": "t.py"}, launcher="python")
    job_file.write_text(yaml.safe_dump(job))
    done = runner.invoke(app, ["run", "--local", "--home", str(tmp_path / "home"), "-f", str(job_file)])
    assert done.exit_code == ExitCode.OK, done.output
    left = [path for path in elsewhere.rglob("*") if path.is_file()]
    assert {path.name.partition("-")[0] for path in left} == {"port"}
    assert [path for path in work.iterdir() if path.name != "t.py"] == []
    assert len(list((tmp_path / "home/.launchers").rglob("*.pyz"))) == 1


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("aiohttp", "cryptography", "kopf", "prometheus_client"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from ddpjob.cli.entry import main
sys.exit(main())
"""


def test_a_run_on_this_machine_needs_no_package_of_the_operator(job_file: Path, tmp_path: Path) -> None:
    arguments = ["run", "--local", "--home", str(tmp_path / "home"), "-f", str(job_file)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert sorted(done.stdout.splitlines()) == ["node 0 | trained", "node 1 | trained"]


def test_a_relative_home_is_the_same_for_a_program_that_works_in_another_folder(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    job = yaml.safe_load(job_file.read_text())
    writes = "import os; os.makedirs(os.environ['DDPJOB_CHECKPOINT_PATH'], exist_ok=True)"
    job["spec"]["trainer"].update(command=[sys.executable, "-c", writes], workingDir=str(tmp_path / "work"))
    job["spec"]["checkpoint"] = {"claimName": "kept"}
    job_file.write_text(yaml.safe_dump(job))
    done = runner.invoke(app, ["run", "--local", "--home", "home", "-f", str(job_file)])
    assert done.exit_code == ExitCode.OK, done.output
    assert len(list((tmp_path / "home/default/claims/kept").iterdir())) == 1


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


def test_a_module_runs_in_the_folder_it_is_found_from_and_no_other_command_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = runner.invoke(app, ["run", "--local", "--dry-run", "--module", "train"])
    assert yaml.safe_load(shown.stdout)["spec"]["trainer"]["workingDir"] == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--local"], "nothing to run"),
        (["run", "--local", "nowhere.py"], "nowhere.py does not exist"),
        (["run", "--local", "--context", "x", "train.py"], "--local runs on this machine until the job ends"),
        (["run", "--local", "-f", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(arguments: list[str], told: str) -> None:
    done = runner.invoke(app, arguments)
    assert done.exit_code == ExitCode.USAGE
    assert told in done.stderr
    assert "Traceback" not in done.output


def test_what_needs_a_cluster_is_refused_before_anything_starts(job_file: Path, tmp_path: Path) -> None:
    job = yaml.safe_load(job_file.read_text())
    job["spec"]["trainer"]["envFrom"] = [{"secretRef": {"name": "token"}}]
    job_file.write_text(yaml.safe_dump(job))
    done = runner.invoke(app, ["run", "--local", "--home", str(tmp_path / "home"), "-f", str(job_file)])
    assert done.exit_code == ExitCode.USAGE, done.output
    assert "spec.trainer.envFrom: token is in a cluster" in done.stderr


SAVES = """
import signal, sys, time
def stop(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
while True:
    print("step", flush=True)
    time.sleep(0.01)
"""


def started(job_file: Path, home: Path, **settings: Any) -> subprocess.Popen[bytes]:
    job = yaml.safe_load(job_file.read_text())
    job["spec"]["nodes"] = 1
    job["spec"]["trainer"]["command"][-1] = SAVES
    job_file.write_text(yaml.safe_dump(job))
    program = "import sys; from ddpjob.cli.entry import main; sys.exit(main())"
    arguments = ["run", "--local", "--home", str(home), "-f", str(job_file)]
    return subprocess.Popen([sys.executable, "-c", program, *arguments], **settings)


def has_saved(home: Path) -> bool:
    return [log.read_text().splitlines()[-1] for log in home.glob("default/jobs/digits/*/*/log")] == ["saved"]


def test_a_reader_of_the_output_that_leaves_stops_the_training_which_saves(job_file: Path, tmp_path: Path) -> None:
    with started(job_file, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == b"step\n"
        run.stdout.close()
        told = run.stderr.read().decode()
    assert (run.returncode, has_saved(tmp_path)) == (ExitCode.INTERRUPTED, True)
    assert "the output can no longer be written: Broken pipe" in told
    assert "Traceback" not in told
    assert "Exception" not in told


def test_a_terminal_that_is_closed_stops_the_training_which_saves(job_file: Path, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with started(
        job_file,
        tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as run:
        os.close(theirs)
        shown = b""
        while b"\nstep" not in shown:
            shown += os.read(ours, 1024)
        os.close(ours)
    assert (run.returncode, has_saved(tmp_path)) == (ExitCode.INTERRUPTED, True)


def test_what_nohup_has_us_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
