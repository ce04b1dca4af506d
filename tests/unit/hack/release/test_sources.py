"""A release is made of what git tracks."""

import os
import subprocess
from pathlib import Path

import pytest

from hack.console import StepError
from hack.release.archives import Entry
from hack.release.sources import commit_time, tracked_files, uncommitted, unpack


@pytest.fixture(autouse=True)
def only_own_repositories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of git, and `git rebase --exec`, name a repository that git init and git commit would change."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=name", "-c", "user.email=name@host.example", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "text").write_text("text")
    (root / "program").write_text("#!/bin/sh\n")
    (root / "program").chmod(0o755)
    git(root, "init", "--quiet")
    git(root, "add", "text", "program")
    git(root, "commit", "--quiet", "--message=one", "--date=@1600000000")
    return root


def test_the_files_are_those_that_git_tracks_and_none_that_lies_next_to_them(repository: Path) -> None:
    (repository / "notes").write_text("mine")
    assert tracked_files(repository) == {"text": Entry(b"text"), "program": Entry(b"#!/bin/sh\n", executable=True)}


def test_modes_on_disk_change_nothing(repository: Path) -> None:
    before = tracked_files(repository)
    (repository / "program").chmod(0o700)
    (repository / "text").chmod(0o640)
    assert tracked_files(repository) == before


def test_a_tracked_link_is_refused_by_its_name(repository: Path) -> None:
    (repository / "link").symlink_to("text")
    git(repository, "add", "link")
    with pytest.raises(StepError, match="link is not a file"):
        tracked_files(repository)


def test_a_tracked_file_that_is_missing_is_named(repository: Path) -> None:
    (repository / "text").unlink()
    with pytest.raises(StepError, match="text, which git tracks, cannot be read"):
        tracked_files(repository)


def test_what_is_not_committed_is_named(repository: Path) -> None:
    assert uncommitted(repository) == []
    (repository / "notes").write_text("mine")
    (repository / "text").write_text("changed")
    assert sorted(uncommitted(repository)) == ["notes", "text"]


def test_the_time_is_that_of_the_commit_unless_the_environment_has_one(repository: Path) -> None:
    shown = subprocess.run(["git", "show", "-s", "--format=%ct"], cwd=repository, capture_output=True, check=True)
    assert commit_time(repository, {}) == int(shown.stdout)
    assert commit_time(repository, {"SOURCE_DATE_EPOCH": "1500000000"}) == 1_500_000_000
    with pytest.raises(StepError, match="must be a number of seconds"):
        commit_time(repository, {"SOURCE_DATE_EPOCH": "yesterday"})


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="git ls-files failed"):
        tracked_files(tmp_path)


def test_files_are_unpacked_with_their_own_modes(tmp_path: Path) -> None:
    unpack({"a/program": Entry(b"1", executable=True), "text": Entry(b"2")}, tmp_path)
    assert (tmp_path / "a/program").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o644
