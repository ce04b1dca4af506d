"""How a job finds the checkpoints of an older one by its name."""

import os
from pathlib import Path

import pytest

from ddpjob_trainer.checkpointing.ancestry import (
    IDENTITY,
    JobIdentity,
    nothing_to_resume,
    older_stores,
    sign,
    was_there,
)
from ddpjob_trainer.checkpointing.storage import CheckpointFolder

OWN = JobIdentity("digits-2", "team", "own")


def job(base: Path, name: str, uid: str, *, namespace: str = "team", written: int | None = None) -> Path:
    """The folder of a job, with a checkpoint that was written at this time."""
    folder = base / uid
    sign(CheckpointFolder(folder), JobIdentity(name, namespace, uid))
    if written is not None:
        checkpoint = CheckpointFolder(folder).save(7, {}, lambda into: (into / "model").touch())
        os.utime(checkpoint, (written, written))
    return folder


def found(base: Path, name: str) -> list[str]:
    return [str(store).rpartition("/")[2] for store in older_stores(CheckpointFolder(base / OWN.uid), OWN, name)]


def test_of_jobs_that_had_the_name_the_one_that_saved_last_comes_first(tmp_path: Path) -> None:
    job(tmp_path, "digits", "b", written=300)
    job(tmp_path, "digits", "c", written=100)
    job(tmp_path, "digits", "a", written=200)
    job(tmp_path, "digits", "never-saved")
    job(tmp_path, "other", "d", written=400)
    job(tmp_path, "digits", "e", namespace="others", written=500)
    assert found(tmp_path, "digits") == ["b", "a", "c"]


def test_a_job_recreated_under_its_name_continues_the_previous_one_and_never_itself(tmp_path: Path) -> None:
    job(tmp_path, OWN.name, OWN.uid, written=900)
    job(tmp_path, OWN.name, "before", written=100)
    assert found(tmp_path, OWN.name) == ["before"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"name": "digits"}', '{"name": [], "namespace": "team", "uid": {}}']
)
def test_a_damaged_identity_hides_its_own_folder_alone(tmp_path: Path, content: str) -> None:
    job(tmp_path, "digits", "a", written=100)
    (job(tmp_path, "digits", "b", written=200) / IDENTITY).write_text(content)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes.txt").touch()
    assert found(tmp_path, "digits") == ["a"]
    assert "digits" in str(nothing_to_resume(CheckpointFolder(tmp_path / OWN.uid), OWN, "letters"))


def test_nothing_to_resume_names_the_folder_and_the_jobs_that_are_there(tmp_path: Path) -> None:
    job(tmp_path, "letters", "a", written=100)
    job(tmp_path, "faces", "b")
    job(tmp_path, "secret", "c", namespace="others", written=100)
    said = str(nothing_to_resume(CheckpointFolder(tmp_path / OWN.uid), OWN, "digits"))
    assert f"job 'digits' has no intact checkpoint in {tmp_path};" in said
    assert said.endswith("jobs with checkpoints there: faces, letters")
    assert str(nothing_to_resume(CheckpointFolder(tmp_path / "none" / OWN.uid), OWN, "digits")).endswith(
        "jobs with checkpoints there: none"
    )


def test_a_folder_is_signed_once_and_as_a_whole(tmp_path: Path) -> None:
    folder = job(tmp_path, "digits", "a")
    before = (folder / IDENTITY).stat()
    sign(CheckpointFolder(folder), JobIdentity("digits", "team", "a"))
    after = (folder / IDENTITY).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [entry.name for entry in folder.iterdir()] == [IDENTITY]


def test_one_of_several_trainings_continues_that_of_its_name(tmp_path: Path) -> None:
    for uid, part, written in (("a", "fold-1", 300), ("b", "fold-1", 200), ("b", "fold-2", 100)):
        sign(CheckpointFolder(tmp_path / uid), JobIdentity("digits", "team", uid))
        saved = CheckpointFolder(tmp_path / uid, part=part).save(7, {}, lambda into: (into / "model").touch())
        os.utime(saved, (written, written))
    for part, uids in (("fold-1", ["a", "b"]), ("fold-2", ["b"]), ("fold-3", []), (None, [])):
        older = older_stores(CheckpointFolder(tmp_path / OWN.uid, part=part), OWN, "digits")
        assert [str(store) for store in older] == [str(tmp_path / uid / (part or "")) for uid in uids]
    assert was_there(CheckpointFolder(tmp_path / OWN.uid), OWN, "digits")
    assert not was_there(CheckpointFolder(tmp_path / OWN.uid), OWN, "letters")
