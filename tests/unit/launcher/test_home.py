"""A user whom the image does not know has a home and a name."""

import contextlib
import getpass
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpjob_launcher.home import give_home

NOBODY = 54321
"""A user that no machine knows."""
ONLY_ROOT = "only root can become a user that does not exist"


def test_a_home_that_can_be_written_to_stays(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "USER": "ann"}
    give_home(environment, "/nonexistent")
    assert environment == {"HOME": str(tmp_path), "USER": "ann"}


@pytest.mark.parametrize("folder", ["home", "volume/home"])
def test_a_home_that_nobody_has_made_yet_is_made(tmp_path: Path, folder: str) -> None:
    environment = {"HOME": str(tmp_path / folder)}
    give_home(environment, "/nonexistent")
    assert environment["HOME"] == str(tmp_path / folder)
    assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("home", ["", "/proc/nonexistent", "/dev/null/home"])
def test_another_home_is_a_folder_for_this_user_alone(tmp_path: Path, home: str) -> None:
    environment = {"HOME": home}
    give_home(environment, str(tmp_path))
    assert environment["HOME"] == str(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder of that user. Not below pytest's own, which is closed to other users."""
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, NOBODY, NOBODY)
        yield place


def ask(folder: str, answers: int) -> None:
    """In a process of its own: become that user, and say what a program then finds."""
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    give_home(os.environ, folder)
    path = Path("~/cache").expanduser()
    path.touch()
    # Not asked of another Python: it may be in a folder that is closed to this user.
    packages = os.environ.get("PYTHONUSERBASE", "")
    os.write(answers, json.dumps([getpass.getuser(), str(path.parent), packages]).encode())


def found_by_nobody(folder: str) -> list[str]:
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
    found: list[str] = json.loads(said)
    return found


def anonymous(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "PYTHONUSERBASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.skipif(os.getuid() != 0, reason=ONLY_ROOT)
@pytest.mark.parametrize("home", ["/", "/root", "/nonexistent"])
def test_a_user_without_a_name_has_both(folder: str, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    anonymous(monkeypatch, HOME=home)
    assert found_by_nobody(folder)[:2] == ["ddpjob", f"{folder}/home"]


@pytest.mark.skipif(os.getuid() != 0, reason=ONLY_ROOT)
@pytest.mark.parametrize("variable", ["LOGNAME", "USER", "LNAME", "USERNAME"])
def test_a_name_that_the_job_gives_stays(folder: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    anonymous(monkeypatch, HOME="/", **{variable: "ann"})
    assert found_by_nobody(folder)[0] == "ann"


@pytest.mark.skipif(os.getuid() != 0, reason=ONLY_ROOT)
def test_packages_in_a_home_that_can_only_be_read_are_still_found(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        Path(home, ".local").mkdir()
        anonymous(monkeypatch, HOME=home)
        _, new, packages = found_by_nobody(folder)
        assert new == f"{folder}/home"
        assert packages == f"{home}/.local"
