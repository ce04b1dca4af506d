"""A user whom the image does not know has a home and a name."""

import contextlib
import getpass
import os
import tempfile
from pathlib import Path

import pytest

from ddpjob_launcher.home import give_home

NOBODY = 54321
"""A user that no machine knows."""


def test_a_home_that_can_be_written_to_stays(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "USER": "ann"}
    give_home(environment, "/nonexistent")
    assert environment == {"HOME": str(tmp_path), "USER": "ann"}


@pytest.mark.parametrize("home", ["", "/nonexistent"])
def test_another_home_is_a_folder_for_this_user_alone(tmp_path: Path, home: str) -> None:
    environment = {"HOME": home}
    give_home(environment, str(tmp_path))
    assert environment["HOME"] == str(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def ask(folder: str, answers: int) -> None:
    """In a process of its own: become that user, and say what a program then finds."""
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    give_home(os.environ, folder)
    path = Path("~/cache").expanduser()
    path.touch()
    os.write(answers, f"{getpass.getuser()} {path.parent}".encode())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user that does not exist")
@pytest.mark.parametrize("home", ["/", "/root", "/nonexistent"])
def test_a_user_without_a_name_has_both(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    # Not below pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                ask(folder, writer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answers:
            said = answers.read()
        os.waitpid(child, 0)
    assert said == f"ddpjob {folder}/home"
