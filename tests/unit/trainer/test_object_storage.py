"""Checkpoints in an object store: complete or not there, by what every such store promises."""

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ddpjob_trainer.checkpointing.ancestry import JobIdentity, nothing_to_resume, older_stores, sign, was_there
from ddpjob_trainer.checkpointing.locations import joined, store_of
from ddpjob_trainer.checkpointing.object_storage import ObjectFolder
from ddpjob_trainer.checkpointing.storage import (
    MANIFEST,
    CheckpointFolder,
    ResumeError,
    SupersededError,
    Version,
)
from ddpjob_trainer.process.environment import MisuseError

NUMBERS = itertools.count()


@pytest.fixture
def url() -> Iterator[str]:
    """An address that no other test has."""
    base = f"memory://bucket-{next(NUMBERS)}"
    yield f"{base}/jobs/uid"
    store = fsspec.filesystem("memory")
    if store.exists(base):
        store.rm(base, recursive=True)


def objects(url: str) -> list[str]:
    """Names of all objects under an address."""
    store = fsspec.filesystem("memory")
    root = url.removeprefix("memory://")
    return sorted(path.split(root + "/", 1)[1] for path in store.find("/" + root))


def put(url: str, name: str, data: bytes) -> None:
    fsspec.filesystem("memory").pipe_file(f"{url}/{name}", data)


def writing(data: bytes) -> Callable[[Path], None]:
    def write(into: Path) -> None:
        (into / "model").write_bytes(data)
        (into / "optimizer").write_bytes(data * 2)

    return write


def save(store: ObjectFolder, step: int, data: bytes = b"weights", **options: Any) -> str:
    return store.save(step, {"step": step}, writing(data), **options)


def newest(store: ObjectFolder) -> tuple[Version, bytes] | None:
    found = next(store.newest(), None)
    return None if found is None else (found.version, (found.folder / "model").read_bytes())


def test_what_was_saved_is_found_with_its_files_and_its_content(url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = ObjectFolder(url, attempt=2)
    assert (list(store.newest()), store.versions()) == ([], [])
    assert save(store, 12) == f"{url}/step-000000012.attempt-2"
    reader = ObjectFolder(url)
    found = next(reader.newest())
    assert (found.version, found.manifest, found.name) == (
        Version(attempt=2, step=12),
        {"step": 12},
        f"{url}/step-000000012.attempt-2",
    )
    assert sorted(file.name for file in found.folder.iterdir()) == ["model", "optimizer"]
    assert (found.folder / "optimizer").read_bytes() == b"weights" * 2
    assert objects(url) == [f"step-000000012.attempt-2/{name}" for name in (MANIFEST, "model", "optimizer")]
    assert not caplog.records


def test_only_the_last_k_and_the_one_to_keep_stay(url: str) -> None:
    store = ObjectFolder(url, keep_last=2)
    for step in (1, 2, 3, 4):
        save(store, step, keep=2)
    assert [version.step for version in store.versions()] == [4, 3, 2]
    assert len(objects(url)) == 9
    with pytest.raises(ValueError, match="keep_last must be at least 1, not 0"):
        ObjectFolder(url, keep_last=0)


def test_the_attempt_counts_before_the_step(url: str) -> None:
    save(ObjectFolder(url), 9)
    save(ObjectFolder(url, attempt=1), 5)
    assert newest(ObjectFolder(url)) == (Version(1, 5), b"weights")
    with pytest.raises(SupersededError, match="attempt 1 writes checkpoints in memory://"):
        save(ObjectFolder(url), 10)


def test_a_step_that_is_saved_again_is_the_old_one_until_the_new_one_is_complete(url: str) -> None:
    store = ObjectFolder(url)
    save(store, 3, b"before")
    seen: list[tuple[Version, bytes] | None] = []

    def write(into: Path) -> None:
        writing(b"after")(into)
        seen.append(newest(ObjectFolder(url)))

    store.save(3, {}, write)
    assert seen == [(Version(0, 3), b"before")]
    assert newest(store) == (Version(0, 3), b"after")
    assert store.versions() == [Version(0, 3)]
    assert {name.partition("/")[0] for name in objects(url)} == {"step-000000003.attempt-0.1"}


@pytest.mark.parametrize("cut", range(4))
def test_a_save_that_is_cut_off_after_any_object_does_not_count_and_is_removed_by_the_next(
    url: str, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectFolder(url)
    save(store, 1)
    count = itertools.count(1)
    real = {name: getattr(store._files, name) for name in ("put_file", "pipe_file")}

    def counted(name: str) -> Callable[..., None]:
        def write(*args: Any, **options: Any) -> None:
            if next(count) > cut:
                # Nothing is cleaned up, as after a SIGKILL.
                raise KeyboardInterrupt
            real[name](*args, **options)

        return write

    with monkeypatch.context() as patched:
        for name in real:
            patched.setattr(store._files, name, counted(name), raising=False)
        if cut < 3:
            with pytest.raises(KeyboardInterrupt):
                save(store, 2)
        else:
            save(store, 2)
    assert newest(ObjectFolder(url)) == (Version(0, 2 if cut == 3 else 1), b"weights")
    save(ObjectFolder(url, attempt=1), 3)
    left = {name.partition("/")[0] for name in objects(url)}
    assert ("step-000000002.attempt-0" in left) == (cut == 3)


def test_an_object_store_that_fails_says_so_as_an_os_error_and_leaves_nothing_half(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectFolder(url)
    save(store, 1)

    class ClientError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise ClientError("slow down")

    monkeypatch.setattr(store._files, "pipe_file", refuse, raising=False)
    with pytest.raises(OSError, match=r"memory://.*: ClientError: slow down"):
        save(store, 2)
    assert {name.partition("/")[0] for name in objects(url)} == {"step-000000001.attempt-0"}
    monkeypatch.setattr(store._files, "get_file", refuse, raising=False)
    with pytest.raises(ResumeError, match=r"step-000000001\.attempt-0 cannot currently be read, and is not skipped: "):
        next(store.newest())
    monkeypatch.setattr(store._files, "find", refuse, raising=False)
    with pytest.raises(ResumeError, match="cannot currently be listed"):
        next(store.newest())


def test_objects_that_were_not_written_as_a_whole_do_not_count(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectFolder(url)
    real = store._files.put_file

    def half(local: str, remote: str) -> None:
        Path(local).write_bytes(b"half")
        real(local, remote)

    monkeypatch.setattr(store._files, "put_file", half, raising=False)
    with pytest.raises(OSError, match="has other objects than were written"):
        save(store, 2)
    assert objects(url) == []


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{", b"[]", b"3", b'{"content": 1, "sha256": {}}', b'{"content": {}, "sha256": 1}', b"[" * 100_000]
    + [json.dumps({"content": {}, "sha256": {name: "0"}}).encode() for name in ("gone", "../model", "..", "/etc/hosts")]
    + [json.dumps({"content": {}, "sha256": {"model": "0"}}).encode()],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    url: str, manifest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = ObjectFolder(url)
    save(store, 1)
    save(store, 2)
    put(url, f"step-000000002.attempt-0/{MANIFEST}", manifest)
    with caplog.at_level(logging.ERROR):
        assert newest(store) == (Version(0, 1), b"weights")
    assert "step-000000002.attempt-0 is corrupt" in caplog.text


def test_an_older_job_is_found_by_its_name(url: str) -> None:
    base = url.rpartition("/")[0]
    own = JobIdentity("digits-2", "team", "uid")
    for name, uid in (("digits", "a"), ("letters", "b"), ("digits", "c")):
        store = store_of(joined(base, uid), attempt=0, keep_last=3)
        sign(store, JobIdentity(name, "team", uid))
        sign(store, JobIdentity(name, "team", uid))
        if uid != "b":
            store.save(3, {}, writing(b"weights"))
    mine = store_of(url, attempt=0, keep_last=3)
    assert [str(each) for each in older_stores(mine, own, "digits")] == [f"{base}/c", f"{base}/a"]
    said = str(nothing_to_resume(mine, own, "faces"))
    assert said.endswith(f"in {base}; jobs with checkpoints there: digits, letters")


def test_one_of_several_trainings_has_a_prefix_of_its_own_and_continues_that_of_its_name(url: str) -> None:
    base = url.rpartition("/")[0]
    for uid in ("a", "b"):
        sign(ObjectFolder(f"{base}/{uid}", part="fold-1"), JobIdentity("digits", "team", uid))
    save(ObjectFolder(f"{base}/a", part="fold-1"), 3)
    assert objects(f"{base}/a") == [
        "fold-1/step-000000003.attempt-0/" + name for name in (MANIFEST, "model", "optimizer")
    ] + ["job.json"]
    own = JobIdentity("digits-2", "team", "uid")
    for part, found in (("fold-1", [f"{base}/a/fold-1"]), ("fold-2", []), (None, [])):
        assert [str(each) for each in older_stores(ObjectFolder(url, part=part), own, "digits")] == found
    assert was_there(ObjectFolder(url, part="fold-2"), own, "digits")
    assert ObjectFolder(f"{base}/a").versions() == []


def test_a_location_is_a_folder_or_an_address(tmp_path: Path) -> None:
    assert joined("/checkpoints", "uid") == "/checkpoints/uid"
    assert joined("s3://bucket/jobs/", "uid") == "s3://bucket/jobs/uid"
    assert joined("s3://bucket/jobs", "") == "s3://bucket/jobs"
    for location in (str(tmp_path), f"file://{tmp_path}"):
        folder = store_of(location, attempt=0, keep_last=3)
        assert isinstance(folder, CheckpointFolder)
        assert folder.path == tmp_path


@pytest.mark.parametrize("address", ["s3://bucket/jobs", "nonsense://bucket/jobs"])
def test_a_package_that_misses_is_named_with_what_to_install(address: str) -> None:
    with pytest.raises(MisuseError, match=r"install ddpjob\[s3\] for s3://, ddpjob\[gcs\] for gs://"):
        store_of(address, attempt=0, keep_last=3)
