"""What is missing is named before anything is waited for."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ddpjob_launcher.errors import CannotStart
from ddpjob_launcher.program import check_program
from tests.unit.launcher.running import ENVIRONMENT, run


def _launch(launcher: Path, folder: Path, **environment: str) -> tuple[int, dict[str, Any], str]:
    log = folder / "termination-log"
    log.touch()
    ended = run([str(launcher)], folder, **{**ENVIRONMENT, **environment}, DDPJOB_TERMINATION_LOG=str(log))
    return ended.returncode, json.loads(log.read_text()), ended.stderr


@pytest.mark.parametrize(
    ("kind", "program", "message"),
    [
        ("script", "gone.py", "script gone.py not found in {folder}: check spec.trainer.script"),
        ("module", "gone.train", "no module named gone.train: check spec.trainer.module"),
        ("script", "pkg/__init__.py", "this image has no torch for {python}: check spec.trainer.image"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_waited_for(
    folder: Path, launcher: Path, kind: str, program: str, message: str
) -> None:
    (folder / "torch").mkdir()
    code, report, log = _launch(launcher, folder, DDPJOB_PROGRAM=program, DDPJOB_PROGRAM_KIND=kind)
    assert code == report["exitCode"] == 1
    expected = message.format(folder=folder, python=sys.executable)
    assert report["failures"][0]["message"].startswith(expected)
    assert "rank" not in report["failures"][0]
    assert expected in log


@pytest.mark.skipif(os.getuid() != 0, reason="only root can close a folder to a user that it then becomes")
def test_a_script_in_a_folder_that_is_closed_to_the_user_is_not_called_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "closed").mkdir(mode=0o700)
    script = folder / "closed" / "train.py"
    script.touch()
    monkeypatch.chdir("/")
    os.seteuid(54321)
    try:
        with pytest.raises(CannotStart) as refused:
            check_program("script", str(script))
    finally:
        os.seteuid(0)
    assert str(refused.value).startswith(f"script {script} cannot be read by user 54321: Permission denied")


def test_without_a_cluster_a_missing_torch_is_to_be_installed(folder: Path, launcher: Path) -> None:
    (folder / "torch").mkdir()
    _, report, _ = _launch(launcher, folder, DDPJOB_PROGRAM="pkg/__init__.py", DDPJOB_LOCAL="1")
    message = f"torch is not installed here: {sys.executable} -m pip install torch"
    assert report["failures"][0]["message"].startswith(message)


def test_a_termination_log_that_cannot_be_written_does_not_hide_the_end(folder: Path, launcher: Path) -> None:
    ended = run(
        [str(launcher)],
        folder,
        **{**ENVIRONMENT, "DDPJOB_TERMINATION_LOG": "/nonexistent/log", "DDPJOB_PROGRAM": "gone.py"},
    )
    assert ended.returncode == 1
    assert "script gone.py not found" in ended.stderr
