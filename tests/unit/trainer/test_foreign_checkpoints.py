"""Checkpoints that a stranger has put on the volume: nothing outside is read, and no resume waits or dies of them."""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpjob_trainer.checkpointing.ancestry import JobIdentity, nothing_to_resume, older_stores, sign
from ddpjob_trainer.checkpointing.plain_files import LARGEST_MANIFEST, LARGEST_NOTE
from ddpjob_trainer.checkpointing.storage import MANIFEST, CheckpointFolder

# One that waits for a pipe, or reads a device, never ends by itself.
pytestmark = pytest.mark.timeout(60)

WEIGHTS = b"weights"
OWN = JobIdentity("mine", "default", "uid-1")


def save(folder: Path, step: int) -> Path:
    def write(into: Path) -> None:
        (into / "model").write_bytes(WEIGHTS)

    return CheckpointFolder(folder).save(step, {"step": step}, write)


def names(folder: Path, name: str, content: bytes = WEIGHTS) -> None:
    """Let the manifest name a file, with the sum of this content."""
    sums = {name: hashlib.sha256(content).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps({"content": {"step": 2}, "sha256": sums}))


def an_absolute_name(folder: Path, outside: Path) -> None:
    names(folder, str(outside))


def a_name_above(folder: Path, _: Path) -> None:
    names(folder, "../../outside")


def a_device(folder: Path, _: Path) -> None:
    names(folder, "/dev/zero")


def a_folder_in_between(folder: Path, _: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner/model").write_bytes(WEIGHTS)
    names(folder, "inner/model")


def a_link_to_a_file(folder: Path, outside: Path) -> None:
    (folder / "model").unlink()
    (folder / "model").symlink_to(outside)


def a_link_that_no_sum_is_of(folder: Path, _: Path) -> None:
    (folder / "optimizer").symlink_to("/dev/zero")


def a_pipe(folder: Path, _: Path) -> None:
    (folder / "model").unlink()
    os.mkfifo(folder / "model")


def a_manifest_that_is_a_device(folder: Path, _: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).symlink_to("/dev/zero")


def a_manifest_that_is_a_pipe(folder: Path, _: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


def a_manifest_that_is_huge(folder: Path, _: Path) -> None:
    with (folder / MANIFEST).open("ab") as file:
        file.truncate(LARGEST_MANIFEST + 1)


def a_manifest_that_is_deep(folder: Path, _: Path) -> None:
    (folder / MANIFEST).write_text('{"content":' * 100_000)


def a_link_to_another_folder(folder: Path, outside: Path) -> None:
    elsewhere = outside.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (an_absolute_name, "is not the name of a file in it"),
        (a_name_above, "is not the name of a file in it"),
        (a_device, "is not the name of a file in it"),
        (a_folder_in_between, "inner is a folder"),
        (a_link_to_a_file, "model is a symbolic link"),
        (a_link_that_no_sum_is_of, "optimizer is a symbolic link"),
        (a_pipe, "model is a pipe"),
        (a_manifest_that_is_a_device, "checkpoint.json is a symbolic link"),
        (a_manifest_that_is_a_pipe, "checkpoint.json is a pipe"),
        (a_manifest_that_is_huge, "checkpoint.json has more than"),
        (a_manifest_that_is_deep, "RecursionError"),
        (a_link_to_another_folder, "is a symbolic link"),
    ],
)
def test_a_checkpoint_with_anything_but_files_of_its_own_is_passed_over_for_an_older_one(
    tmp_path: Path, spoil: Callable[[Path, Path], None], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(WEIGHTS)
    save(tmp_path / "uid-1", 1)
    spoil(save(tmp_path / "uid-1", 2), outside)
    with caplog.at_level(logging.ERROR):
        found = next(CheckpointFolder(tmp_path / "uid-1").newest())
    assert found.version.step == 1
    assert why in caplog.text


def written(text: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(text)


def grown(path: Path) -> None:
    path.write_bytes(json.dumps({"name": "older", "namespace": "default", "uid": "uid-2"}).encode())
    with path.open("ab") as file:
        file.truncate(LARGEST_NOTE + 1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.symlink_to("/dev/zero"),
        os.mkfifo,
        grown,
        written("[" * 100_000),
        written('{"name": ["older"], "namespace": "default", "uid": "uid-2"}'),
        lambda path: path.mkdir(),
    ],
    ids=["a device", "a pipe", "a huge one", "a deep one", "another type", "a folder"],
)
def test_an_identity_that_cannot_be_one_is_ignored(tmp_path: Path, spoil: Callable[[Path], Any]) -> None:
    save(tmp_path / "uid-2", 1)
    spoil(tmp_path / "uid-2/job.json")
    own = CheckpointFolder(tmp_path / OWN.uid)
    assert list(older_stores(own, OWN, "older")) == []
    assert "none" in str(nothing_to_resume(own, OWN, "older"))


def test_an_own_identity_that_is_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    own = CheckpointFolder(tmp_path / OWN.uid)
    own.path.mkdir()
    (own.path / "job.json").symlink_to(outside)
    (own.path / f".job.json.{os.getpid()}").symlink_to(outside)
    sign(own, OWN)
    assert outside.read_text() == "precious"
    assert json.loads((own.path / "job.json").read_text())["uid"] == OWN.uid
