"""Checkpoint folders: complete or not there, whatever a disk, a crash or a left-over process does."""

import errno
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob_trainer.checkpointing.storage import MANIFEST, CheckpointFolder, ResumeError, SupersededError, Version

ONE_MIB = bytes(1024) * 1024

STOPS_WHILE_IT_WRITES = """
import os, pathlib, signal, sys
from ddpjob_trainer.checkpointing.storage import CheckpointFolder, SupersededError

def write(into):
    (into / "model").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGSTOP)
    with (into / "optimizer").open("wb") as file:
        file.write(b"the other half")

try:
    CheckpointFolder(pathlib.Path(sys.argv[1]), attempt=0).save(7, {}, write)
except SupersededError as reason:
    print(reason)
"""


def save(folder: CheckpointFolder, step: int, data: bytes = b"weights") -> Path:
    return folder.save(step, {"step": step}, lambda into: void((into / "model").write_bytes(data)))


def void(_: object) -> None:
    return None


def newest_step(folder: CheckpointFolder) -> int | None:
    found = next(folder.newest(), None)
    return None if found is None else found.version.step


def test_what_was_saved_is_found_with_its_files_and_its_content(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "uid", attempt=2)
    assert list(folder.newest()) == []
    path = save(folder, 12, ONE_MIB)
    found = next(folder.newest())
    assert (found.version, found.folder, found.manifest) == (Version(attempt=2, step=12), path, {"step": 12})
    assert path.name == "step-000000012.attempt-2"
    assert (path / "model").read_bytes() == ONE_MIB


def test_only_the_last_k_checkpoints_stay(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    for step in (1, 2, 30, 4_000_000_000):
        save(folder, step)
    assert [version.step for version in folder.versions()] == [4_000_000_000, 30]
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ValueError, match="keep_last must be at least 1, not 0"):
        CheckpointFolder(tmp_path, keep_last=0)


def test_one_that_is_to_be_kept_stays_in_addition_to_the_last_k(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    for step in (1, 2, 3, 4, 5):
        folder.save(step, {}, lambda into: void((into / "model").write_bytes(b"weights")), keep=2)
    assert [version.step for version in folder.versions()] == [5, 4, 2]
    # A later attempt has come to that step again.
    later = CheckpointFolder(tmp_path, attempt=1, keep_last=1)
    for step in (2, 3):
        later.save(step, {}, lambda into: void((into / "model").write_bytes(b"weights")), keep=2)
    assert later.versions() == [Version(1, 3), Version(1, 2)]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing file", "no manifest", "half a manifest", "empty"])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_taken(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    path = save(folder, 2, ONE_MIB)
    match damage:
        case "truncated":
            (path / "model").write_bytes(ONE_MIB[:-1])
        case "flipped":
            (path / "model").write_bytes(b"\x01" + ONE_MIB[1:])
        case "missing file":
            (path / "model").unlink()
        case "no manifest":
            (path / MANIFEST).unlink()
        case "half a manifest":
            (path / MANIFEST).write_text((path / MANIFEST).read_text()[:-9])
        case _:
            for file in path.iterdir():
                file.write_bytes(b"")
    with caplog.at_level(logging.ERROR):
        assert newest_step(folder) == 1
    assert "step-000000002" in caplog.text
    assert "falling back" in caplog.text


@given(st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_a_manifest_of_any_bytes_never_breaks_a_resume(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = CheckpointFolder(tmp_path_factory.mktemp("checkpoints"))
    save(folder, 1)
    (save(folder, 2) / MANIFEST).write_bytes(content)
    assert newest_step(folder) == 1


@pytest.mark.parametrize(
    "manifest", [[], 3, {"sha256": {}}, {"content": 1, "sha256": {}}, {"content": {}, "sha256": 1}]
)
def test_a_manifest_of_another_form_counts_as_damage(tmp_path: Path, manifest: object) -> None:
    folder = CheckpointFolder(tmp_path)
    (save(folder, 1) / MANIFEST).write_text(json.dumps(manifest))
    assert newest_step(folder) is None


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOMEM])
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2):
        save(folder, step)

    def broken(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(hashlib, "file_digest", broken)
    with pytest.raises(ResumeError, match=r"step-000000002.attempt-0 cannot currently be read, and is not skipped: "):
        next(folder.newest())


def test_a_damaged_checkpoint_does_not_keep_its_step_from_being_saved_again(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    (save(folder, 2) / "model").write_bytes(b"")
    save(folder, 2)
    assert newest_step(folder) == 2


class KilledError(BaseException):
    """The process is gone."""


class Killing:
    """Lets a process rename and remove folders so many times, and then do nothing any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        monkeypatch.setattr(Path, "rename", self._of(Path.rename))
        monkeypatch.setattr("shutil.rmtree", self._of(shutil.rmtree))

    def _of(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.left == 0:
                raise KilledError
            self.left -= 1
            return real(*arguments, **options)

        return call


@pytest.mark.parametrize(("after", "found"), [(0, b"before"), (1, b"before"), (2, b"after"), (3, b"after")])
def test_a_writer_killed_while_it_replaces_a_checkpoint_of_the_same_step_leaves_one_of_the_two(
    tmp_path: Path, after: int, found: bytes
) -> None:
    storage = CheckpointFolder(tmp_path, keep_last=1)
    save(storage, 2, b"before")
    with pytest.MonkeyPatch.context() as patch:
        Killing(patch, after)
        with pytest.raises(KilledError):
            save(storage, 2, b"after")
    restarted = CheckpointFolder(tmp_path, keep_last=2)
    assert [(each.folder / "model").read_bytes() for each in restarted.newest()] == [found]
    # It is one like any other from then on, and what else was left is gone.
    save(restarted, 4, b"next")
    assert [(each.folder / "model").read_bytes() for each in restarted.newest()] == [b"next", found]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "step-000000002.attempt-0",
        "step-000000004.attempt-0",
    ]


def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CheckpointFolder(tmp_path)
    save(storage, 2, b"before")
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        # The second of the two renames.
        if path.name.endswith(".unfinished") and path.name.count(".") > 2:
            raise OSError("the volume has gone")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="the volume has gone"):
        save(storage, 2, b"after")
    assert [(found.folder / "model").read_bytes() for found in storage.newest()] == [b"before"]


def test_a_save_that_fails_leaves_no_trace_and_the_older_checkpoints(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)

    def fill_the_disk(into: Path) -> None:
        (into / "model").write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        folder.save(2, {}, fill_the_disk)
    assert newest_step(folder) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_writer_left_is_not_a_checkpoint_and_is_removed_by_the_next_save(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    left = tmp_path / "step-000000002.attempt-0.17.unfinished"
    left.mkdir()
    (left / "model").write_bytes(b"half")
    assert newest_step(folder) == 1
    save(folder, 3)
    assert not left.exists()


def test_a_writer_of_an_older_attempt_stops_before_its_checkpoint_appears(tmp_path: Path) -> None:
    old, new = CheckpointFolder(tmp_path, attempt=0), CheckpointFolder(tmp_path, attempt=1)
    save(old, 5)

    def meanwhile_the_next_attempt_saves(into: Path) -> None:
        (into / "model").write_bytes(b"stale")
        (into / "model").chmod(0o600)
        (tmp_path / Version(attempt=1, step=6).folder).mkdir()

    with pytest.raises(SupersededError, match="attempt 1 writes"):
        old.save(7, {}, meanwhile_the_next_attempt_saves)
    (tmp_path / Version(attempt=1, step=6).folder).rmdir()
    save(new, 6)
    with pytest.raises(SupersededError):
        save(old, 7)
    assert newest_step(new) == 6


def test_a_leftover_writer_is_refused_before_it_touches_what_a_newer_attempt_has_not_finished(tmp_path: Path) -> None:
    old, new = CheckpointFolder(tmp_path, attempt=0), CheckpointFolder(tmp_path, attempt=1)
    save(old, 5)

    def meanwhile_the_older_one_saves(into: Path) -> None:
        (into / "model").write_bytes(b"new")
        with pytest.raises(SupersededError, match="attempt 1 writes"):
            old.save(9, {}, lambda _: pytest.fail("it wrote before it looked"))

    path = new.save(6, {}, meanwhile_the_older_one_saves)
    assert (path / "model").read_bytes() == b"new"
    assert newest_step(new) == 6


def test_a_newer_attempt_removes_what_an_older_one_has_not_finished_which_then_stops(tmp_path: Path) -> None:
    old, new = CheckpointFolder(tmp_path, attempt=0), CheckpointFolder(tmp_path, attempt=1)

    def meanwhile_the_next_attempt_saves(into: Path) -> None:
        save(new, 6)
        # Its folder is gone: the error of the file system is not the one to report.
        (into / "model").write_bytes(b"stale")

    with pytest.raises(SupersededError, match="attempt 1 writes"):
        old.save(7, {}, meanwhile_the_next_attempt_saves)
    assert [entry.name for entry in tmp_path.iterdir()] == [Version(attempt=1, step=6).folder]


def test_rank_0_of_a_lost_node_that_comes_back_inside_a_save_stops_and_changes_nothing(tmp_path: Path) -> None:
    save(CheckpointFolder(tmp_path, attempt=0), 5)
    new = CheckpointFolder(tmp_path, attempt=1)
    with subprocess.Popen(
        [sys.executable, "-c", STOPS_WHILE_IT_WRITES, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as lost:
        try:
            _, status = os.waitpid(lost.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            path = save(new, 6)
            before = {file: file.read_bytes() for file in path.iterdir()}
            lost.send_signal(signal.SIGCONT)
            said, _ = lost.communicate()
        finally:
            lost.kill()
    assert "attempt 1 writes checkpoints" in said
    assert {file: file.read_bytes() for file in path.iterdir()} == before
    assert {entry.name for entry in tmp_path.iterdir()} == {
        version.folder for version in (Version(attempt=0, step=5), Version(attempt=1, step=6))
    }
    assert newest_step(new) == 6


def test_an_attempt_that_began_further_back_is_the_one_that_counts(tmp_path: Path) -> None:
    for step in (50, 60, 70):
        save(CheckpointFolder(tmp_path, attempt=0), step)
    new = CheckpointFolder(tmp_path, attempt=1, keep_last=2)
    save(new, 55)
    assert new.versions() == [Version(attempt=1, step=55), Version(attempt=0, step=70)]
    assert newest_step(CheckpointFolder(tmp_path, attempt=2)) == 55


@pytest.mark.parametrize(("keep_last", "kept"), [(1, [60]), (2, [60, 50])])
def test_the_checkpoint_just_written_stays_where_a_later_one_of_the_attempt_was_passed_over(
    tmp_path: Path, keep_last: int, kept: list[int]
) -> None:
    # Workers restarted in place are of the same attempt as before.
    folder = CheckpointFolder(tmp_path, keep_last=keep_last)
    save(folder, 50)
    (save(folder, 70) / "model").write_bytes(b"damaged")
    save(folder, 60)
    assert [version.step for version in folder.versions()] == kept


def test_a_checkpoint_that_replaces_others_while_they_are_read_is_found(tmp_path: Path) -> None:
    old = CheckpointFolder(tmp_path, attempt=0, keep_last=2)
    save(old, 4)
    save(old, 5)
    reading = CheckpointFolder(tmp_path, attempt=1).newest()
    assert next(reading).version.step == 5
    save(old, 8)
    save(old, 9)
    assert [found.version.step for found in reading] == [9, 8]


def test_an_attempt_continues_the_checkpoints_of_the_one_before(tmp_path: Path) -> None:
    save(CheckpointFolder(tmp_path, attempt=0), 5)
    save(CheckpointFolder(tmp_path, attempt=1), 5, b"again")
    found = next(CheckpointFolder(tmp_path, attempt=2).newest())
    assert found.version == Version(attempt=1, step=5)


def test_foreign_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-x.attempt-0").mkdir()
    folder = CheckpointFolder(tmp_path, keep_last=1)
    save(folder, 1)
    save(folder, 2)
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "notes.txt",
        "step-x.attempt-0",
        Version(attempt=0, step=2).folder,
    }
