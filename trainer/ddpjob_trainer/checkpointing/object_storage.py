"""Checkpoints in an object store (S3, Google Cloud Storage, and whatever else fsspec reaches): complete, or not there.

An object store has no rename, and an object appears as a whole when it has been written. A checkpoint is the objects
with a common prefix `step-<step>.attempt-<attempt>/`; the manifest with their SHA-256 sums is written last, so that it
proves that all are there. One that replaces another of its step gets a prefix of its own, `....<number>/`, of which the
highest counts: a reader finds the old one until the new one is complete.

What a folder of a volume guarantees holds here as well, if a listing shows what has been written before, as S3, GCS
and MinIO promise. Files are staged on the node's disk, in the folder for temporary files: a model too large for memory
twice is seldom too large for that.
"""

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ddpjob_trainer.checkpointing.plain_files import LARGEST_MANIFEST, LARGEST_NOTE, NotPlainError, file_in
from ddpjob_trainer.checkpointing.storage import (
    DEFAULT_KEEP_LAST,
    MANIFEST,
    Checkpoint,
    CorruptError,
    ResumeError,
    Version,
    refuse_if_superseded,
    sha256_of,
    surplus,
)
from ddpjob_trainer.process.environment import MisuseError

_NAME: Final = re.compile(r"step-(\d+)\.attempt-(\d+)(?:\.(\d+))?")
_STAGED: Final = "ddpjob-checkpoint."

_log = logging.getLogger(__name__)


def is_url(location: str) -> bool:
    """Whether this is an address in an object store, and not the path of a folder."""
    return "://" in location


@dataclass(frozen=True, slots=True)
class _Entry:
    """The objects of a prefix that is or will be a checkpoint."""

    version: Version
    number: int
    """Of several for the same version the highest counts."""
    name: str
    sizes: dict[str, int]
    """Bytes of each object by its name under the prefix."""

    @property
    def finished(self) -> bool:
        """Whether all of its objects are there."""
        return MANIFEST in self.sizes


class ObjectFolder:
    """The checkpoints of one job under a prefix of an object store. Only rank 0 uses it."""

    def __init__(
        self, url: str, *, part: str | None = None, attempt: int = 0, keep_last: int = DEFAULT_KEEP_LAST
    ) -> None:
        """Args:
        url: of the prefix, such as `s3://bucket/jobs/uid`.
        part: name of a prefix within that holds them instead, for one of several trainings.
        attempt: of the job, to which this process belongs.
        keep_last: how many checkpoints are kept after a save, at least 1.

        Raises:
            MisuseError: no package for such addresses is installed.
            ValueError: keep_last is below 1.
        """
        if keep_last < 1:
            raise ValueError(f"keep_last must be at least 1, not {keep_last}")
        self._base = url.rstrip("/")
        self._part = part
        self._url = self._base if part is None else f"{self._base}/{part}"
        self._files, self._home = _file_system(self._base)
        self._root = self._home if part is None else f"{self._home}/{part}"
        self._attempt = attempt
        self._keep_last = keep_last
        self._staged: tempfile.TemporaryDirectory[str] | None = None

    def __str__(self) -> str:
        return self._url

    @property
    def part(self) -> str | None:
        """Name of one of several trainings."""
        return self._part

    @property
    def parent(self) -> str:
        """Where the jobs next to this one are."""
        return self._base.rpartition("/")[0]

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> str:
        """Write a checkpoint and remove the oldest ones beyond `keep_last`.

        Args:
            step: completed optimizer steps.
            content: for the manifest; anything that JSON can hold.
            write: writes the checkpoint's files into the given folder.
            keep: step of another one to keep.

        Returns:
            The checkpoint's address.

        Raises:
            SupersededError: a newer attempt writes here; its objects were not touched.
            OSError: the object store cannot be written to; earlier checkpoints are untouched.
        """
        version = Version(self._attempt, step)
        self._discard_staged()
        entries = self._entries()
        self._refuse_if_superseded(entries)
        self._remove([each for each in entries if not each.finished and each.version.attempt <= self._attempt])
        numbers = [each.number for each in entries if each.version == version and each.finished]
        name = f"{version.folder}.{max(numbers) + 1}" if numbers else version.folder
        with tempfile.TemporaryDirectory(prefix=_STAGED) as scratch:
            write(Path(scratch))
            try:
                self._upload(Path(scratch), name, content)
            except Exception:
                with suppress(OSError):
                    entries = self._entries()
                    self._remove([each for each in entries if each.name == name and not each.finished])
                # A newer attempt removes what this one has not finished: that is then the cause of the failure.
                self._refuse_if_superseded(entries)
                raise
        self._remove_oldest(version, keep)
        return f"{self._url}/{name}"

    def _upload(self, folder: Path, name: str, content: dict[str, Any]) -> None:
        files = sorted(folder.iterdir())
        sums = {file.name: sha256_of(file) for file in files}
        sizes = {file.name: file.stat().st_size for file in files}
        for file in files:
            with self._reached():
                self._files.put_file(str(file), f"{self._root}/{name}/{file.name}")
        entries = self._entries()
        self._refuse_if_superseded(entries)
        there = next((each.sizes for each in entries if each.name == name), {})
        if there != sizes:
            raise OSError(f"{self._url}/{name} has other objects than were written: {there} instead of {sizes}")
        manifest = json.dumps({"content": content, "sha256": sums}).encode()
        with self._reached():
            self._files.pipe_file(f"{self._root}/{name}/{MANIFEST}", manifest)

    def newest(self) -> Iterator[Checkpoint]:
        """Intact checkpoints, the newest first; each corrupt one is logged and skipped.

        Raises:
            ResumeError: one cannot be read, so it may be intact.
        """
        seen: set[str] = set()
        # Listed again at the end: a leftover process of an older attempt may remove one and finish another.
        while found := [each for each in self._to_resume() if each.name not in seen]:
            for entry in found:
                seen.add(entry.name)
                where = f"{self._url}/{entry.name}"
                try:
                    folder, content = self._fetch(entry)
                except (CorruptError, FileNotFoundError) as reason:
                    _log.error("checkpoint %s is corrupt (%s): falling back to the previous one", where, reason)
                except OSError as reason:
                    raise ResumeError(
                        f"the checkpoint {where} cannot currently be read, and is not skipped: {reason}"
                    ) from reason
                else:
                    yield Checkpoint(entry.version, folder, content, where)

    def versions(self) -> list[Version]:
        """All finished checkpoints, intact or not, the newest first.

        Raises:
            OSError: they cannot be listed.
        """
        return sorted(_counting(self._entries()), reverse=True)

    def written(self, version: Version) -> float:
        """When a finished checkpoint was written, in seconds.

        Raises:
            OSError: it is gone.
        """
        entry = _counting(self._entries()).get(version)
        if entry is None:
            raise FileNotFoundError(f"{self._url}/{version.folder}")
        with self._reached():
            modified = self._files.modified(f"{self._root}/{entry.name}/{MANIFEST}")
        return modified.timestamp() if isinstance(modified, datetime) else float(modified)

    def note(self, name: str) -> str:
        """The text of a small object of the job.

        Raises:
            OSError: there is none, or it cannot be read.
            ValueError: it cannot be decoded.
        """
        with self._reached():
            found = self._files.cat_file(f"{self._home}/{name}", start=0, end=LARGEST_NOTE + 1)
        if len(found) > LARGEST_NOTE:
            raise NotPlainError(f"{name} has more than {LARGEST_NOTE} bytes")
        return str(found, "utf-8")

    def write_note(self, name: str, text: str) -> None:
        """Write a small object of the job; a reader never sees half of it.

        Raises:
            OSError: it cannot be written.
        """
        with self._reached():
            self._files.pipe_file(f"{self._home}/{name}", text.encode())

    def neighbours(self) -> "Iterator[ObjectFolder]":
        """Every prefix next to the job's, and its own, for the same part.

        Raises:
            OSError: they cannot be listed.
        """
        base = self._home.rpartition("/")[0]
        with self._reached():
            self._files.invalidate_cache()
            found = self._files.ls(base, detail=True) if self._files.exists(base) else []
        for each in found:
            if each["type"] == "directory":
                name = each["name"].rstrip("/").rpartition("/")[2]
                yield ObjectFolder(f"{self.parent}/{name}", part=self._part)

    def _to_resume(self) -> list[_Entry]:
        try:
            found = _counting(self._entries())
        except OSError as reason:
            raise ResumeError(f"the checkpoints in {self._url} cannot currently be listed: {reason}") from reason
        return [found[version] for version in sorted(found, reverse=True)]

    def _entries(self) -> list[_Entry]:
        """Every prefix that is or will be a checkpoint, with what it has, by one listing."""
        with self._reached():
            self._files.invalidate_cache()
            objects = self._files.find(self._root, detail=True)
        entries: dict[str, _Entry] = {}
        for path, details in objects.items():
            name, _, file = path.removeprefix(self._root).lstrip("/").partition("/")
            found = _NAME.fullmatch(name)
            if found is None or not file:
                continue
            version = Version(int(found[2]), int(found[1]))
            entry = entries.setdefault(name, _Entry(version, int(found[3] or 0), name, {}))
            entry.sizes[file] = int(details["size"])
        return list(entries.values())

    def _refuse_if_superseded(self, entries: list[_Entry]) -> None:
        refuse_if_superseded((each.version for each in entries), self._attempt, self._url)

    def _remove_oldest(self, written: Version, keep: int | None) -> None:
        try:
            entries = [each for each in self._entries() if each.version.attempt <= self._attempt and each.finished]
            counting = _counting(entries)
            old = set(surplus(counting, written, keep_last=self._keep_last, keep=keep))
            self._remove([each for each in entries if each.version in old or each != counting[each.version]])
        except OSError as reason:
            _log.warning("cannot remove old checkpoints in %s: %s", self._url, reason)

    def _remove(self, entries: list[_Entry]) -> None:
        for entry in entries:
            # The manifest first: what is being removed must not be taken for a checkpoint.
            for file in sorted(entry.sizes, key=lambda name: name != MANIFEST):
                with suppress(FileNotFoundError), self._reached():
                    self._files.rm_file(f"{self._root}/{entry.name}/{file}")

    def _fetch(self, entry: _Entry) -> tuple[Path, dict[str, Any]]:
        """A folder with a checkpoint's files, as they were written, and its content.

        Raises:
            CorruptError: they differ from what was written.
            OSError: they cannot be read.
        """
        self._discard_staged()
        if entry.sizes[MANIFEST] > LARGEST_MANIFEST:
            raise CorruptError(f"its manifest has {entry.sizes[MANIFEST]} bytes")
        with self._reached():
            text = self._files.cat_file(f"{self._root}/{entry.name}/{MANIFEST}")
        try:
            manifest = json.loads(text)
            content, sums = manifest["content"], dict(manifest["sha256"])
        except (ValueError, KeyError, TypeError, RecursionError) as reason:
            raise CorruptError(f"{type(reason).__name__}: {reason}") from reason
        if not isinstance(content, dict):
            raise CorruptError("its manifest has no content")
        self._staged = tempfile.TemporaryDirectory(prefix=_STAGED)
        folder = Path(self._staged.name)
        for name, expected in sums.items():
            file = _place(folder, name, entry)
            with self._reached():
                self._files.get_file(f"{self._root}/{entry.name}/{name}", str(file))
            if sha256_of(file) != expected:
                raise CorruptError(f"the SHA-256 of {name} differs from its manifest")
        return folder, content

    def _discard_staged(self) -> None:
        if self._staged is not None:
            self._staged.cleanup()
            self._staged = None

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """What an object store's client raises is an OSError in here, as of a file that cannot be reached."""
        try:
            yield
        except OSError:
            raise
        except Exception as reason:
            raise OSError(f"{self._url}: {type(reason).__name__}: {reason}") from reason


def _place(folder: Path, name: str, entry: _Entry) -> Path:
    """Where an object that a manifest names is put."""
    if name not in entry.sizes:
        raise CorruptError(f"its manifest names {name!r}, which is not there")
    try:
        return file_in(folder, name)
    except NotPlainError as reason:
        raise CorruptError(str(reason)) from reason


def _counting(entries: list[_Entry]) -> dict[Version, _Entry]:
    """Of each finished version the entry that counts."""
    return {each.version: each for each in sorted(entries, key=lambda each: each.number) if each.finished}


def _file_system(url: str) -> tuple[Any, str]:
    """Fsspec's file system for an address, and the path in it.

    Raises:
        MisuseError: no package for such addresses is installed.
    """
    scheme = url.partition("://")[0]
    try:
        import fsspec  # noqa: PLC0415 an extra

        # Listings must show what others have written meanwhile.
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except (ImportError, ValueError) as missing:
        raise MisuseError(
            f"checkpoints in {url} need a package that is not installed: install ddpjob[s3] for s3://, ddpjob[gcs] for "
            f"gs://, or fsspec's package for {scheme}:// ({missing})"
        ) from missing
    return files, root.rstrip("/")
