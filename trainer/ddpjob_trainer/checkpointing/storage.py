"""Folders that are either complete or absent, whatever happens to the machine meanwhile.

A checkpoint is a folder of files with a manifest of their SHA-256 sums, named `step-<step>.attempt-<attempt>`. It is
written under a temporary name, synced to disk and renamed, so that its name proves that it is complete; the sums detect
what disks and networks do to it later. This module does not care what the files hold.

The attempt counts before the step. An attempt that had to start before the last step of the previous one, because a
checkpoint was damaged or because a process presumed dead finished writing one, is the training that continues; if it
ends before its first checkpoint, the older attempt's newest remains the newest. No lock is needed: whatever a process
of an older attempt writes between its last check and its rename never comes first.
"""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddpjob_trainer.checkpointing.plain_files import LARGEST_MANIFEST, LARGEST_NOTE, file_in, open_plain, read_plain

MANIFEST: Final = "checkpoint.json"
DEFAULT_KEEP_LAST: Final = 3
_UNFINISHED: Final = ".unfinished"
_ASIDE: Final = f".0{_UNFINISHED}"
"""Suffix of a checkpoint that is being replaced by another one of its step; no process has the number 0."""
_DAMAGED: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of opening a file that is missing, or a name in the manifest that cannot be a file."""
_NAME: Final = re.compile(rf"step-(\d+)\.attempt-(\d+)((?:\.\d+)?{re.escape(_UNFINISHED)})?")

_log = logging.getLogger(__name__)


class SupersededError(RuntimeError):
    """A newer attempt of the job writes here: this process belongs to an older one and must stop."""


class CorruptError(Exception):
    """A checkpoint's files differ from what was written."""


class ResumeError(RuntimeError):
    """Checkpoints exist, but none can be resumed from: nothing is trained from scratch over them."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Orders checkpoints: the later attempt wins, and of the same attempt the later step."""

    attempt: int
    step: int

    @property
    def folder(self) -> str:
        """Name of the checkpoint's folder."""
        return f"step-{self.step:09d}.attempt-{self.attempt}"


_Entry = tuple[Version, Path, bool]
"""A folder that is or will be a checkpoint, and whether it is finished."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk whose files have been verified."""

    version: Version
    folder: Path
    """Holds its files until the next save, or the next one that is looked for."""
    manifest: dict[str, Any]
    """The content given to `save`, as read from JSON."""
    name: str
    """Where it is, for people."""


class CheckpointFolder:
    """The checkpoints of one job in a folder of a volume. Only rank 0 uses it."""

    def __init__(
        self, folder: Path, *, part: str | None = None, attempt: int = 0, keep_last: int = DEFAULT_KEEP_LAST
    ) -> None:
        """Args:
        folder: holds the checkpoints; created when the first one is saved.
        part: name of the folder's own folder that holds them instead, for one of several trainings.
        attempt: of the job, to which this process belongs.
        keep_last: how many checkpoints are kept after a save, at least 1.
        """
        if keep_last < 1:
            raise ValueError(f"keep_last must be at least 1, not {keep_last}")
        self._base = folder
        self._part = part
        self._folder = folder if part is None else folder / part
        self._attempt = attempt
        self._keep_last = keep_last

    def __str__(self) -> str:
        return str(self._folder)

    @property
    def path(self) -> Path:
        """Its path."""
        return self._folder

    @property
    def base(self) -> Path:
        """The folder of all trainings of the job; without a part this one."""
        return self._base

    @property
    def part(self) -> str | None:
        """Name of one of several trainings."""
        return self._part

    @property
    def parent(self) -> str:
        """Where the jobs next to this one are."""
        return str(self._base.parent)

    def written(self, version: Version) -> float:
        """When a finished checkpoint was written, in seconds.

        Raises:
            OSError: it is gone.
        """
        return (self._folder / version.folder).stat().st_mtime

    def note(self, name: str) -> str:
        """The text of a small file of the job.

        Raises:
            OSError: there is none, or it cannot be read.
            ValueError: it cannot be decoded.
        """
        return read_plain(self._base / name, LARGEST_NOTE)

    def write_note(self, name: str, text: str) -> None:
        """Write a small file of the job; a reader never sees half of it.

        Raises:
            OSError: it cannot be written.
        """
        self._base.mkdir(parents=True, exist_ok=True)
        temporary = self._base / f".{name}.{os.getpid()}"
        # Of a process that died, or a link that another user has put there to have another file written.
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._base / name)

    def neighbours(self) -> "Iterator[CheckpointFolder]":
        """Everything next to the job's folder, for the same part."""
        base = self._base.parent
        for path in base.iterdir() if base.is_dir() else ():
            yield CheckpointFolder(path, part=self._part)

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> Path:
        """Write a checkpoint and remove the oldest ones beyond `keep_last`.

        Args:
            step: completed optimizer steps.
            content: for the manifest; anything that JSON can hold.
            write: writes the checkpoint's files into the given folder.
            keep: step of another one to keep.

        Returns:
            The checkpoint's folder.

        Raises:
            SupersededError: a newer attempt writes here; its files were not touched.
            OSError: the volume cannot be written to; earlier checkpoints are untouched.
        """
        version = Version(self._attempt, step)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._refuse_if_superseded()
        self._remove_unfinished()
        target = self._folder / version.folder
        unfinished = self._folder / f"{version.folder}.{os.getpid()}{_UNFINISHED}"
        unfinished.mkdir()
        try:
            write(unfinished)
            files = sorted(unfinished.iterdir())
            manifest = {"content": content, "sha256": {file.name: sha256_of(file) for file in files}}
            (unfinished / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            for path in (*files, unfinished / MANIFEST, unfinished):
                _force_to_disk(path)
            self._refuse_if_superseded()
            before = _put_in_place(unfinished, target)
            _force_to_disk(self._folder)
            shutil.rmtree(before, ignore_errors=True)
        except Exception:
            # A newer attempt removes what this one has not finished: that is then the cause of the failure.
            self._refuse_if_superseded()
            raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._remove_oldest(version, keep)
        return target

    def newest(self) -> Iterator[Checkpoint]:
        """Intact checkpoints, the newest first; each corrupt one is logged and skipped.

        Raises:
            ResumeError: one cannot be read, so it may be intact.
        """
        seen: set[Version] = set()
        # Listed again at the end: a leftover process of an older attempt may remove one and finish another.
        while found := {each: folder for each, folder in _finished(self._entries()).items() if each not in seen}:
            for version, folder in sorted(found.items(), reverse=True):
                seen.add(version)
                try:
                    yield Checkpoint(version, folder, _verify(folder), str(folder))
                except CorruptError as reason:
                    _log.error("checkpoint %s is corrupt (%s): falling back to the previous one", folder, reason)

    def versions(self) -> list[Version]:
        """All finished checkpoints, intact or not, the newest first."""
        return sorted(_finished(self._entries()), reverse=True)

    def _entries(self) -> list[_Entry]:
        """Every folder that is or will be a checkpoint, and whether it is finished."""
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(entry.name), entry) for entry in self._folder.iterdir()]
        return [(Version(int(name[2]), int(name[1])), entry, name[3] is None) for name, entry in named if name]

    def _refuse_if_superseded(self) -> None:
        refuse_if_superseded((version for version, _, _ in self._entries()), self._attempt, str(self))

    def _remove_oldest(self, written: Version, keep: int | None) -> None:
        for version in surplus(self.versions(), written, keep_last=self._keep_last, keep=keep):
            try:
                _discard(self._folder / version.folder)
            except OSError as reason:
                _log.warning("cannot remove the old checkpoint %s: %s", version.folder, reason)

    def _remove_unfinished(self) -> None:
        entries = self._entries()
        found = _finished(entries)
        for version, folder, finished in entries:
            if finished or version.attempt > self._attempt:
                continue
            if found.get(version) == folder:
                # Its writer died while replacing this one.
                folder.rename(self._folder / version.folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)


def refuse_if_superseded(found: Iterable[Version], attempt: int, where: str) -> None:
    """Fail if any of these checkpoints, finished or not, belongs to a newer attempt than this one.

    Raises:
        SupersededError: names both.
    """
    newest = max((version.attempt for version in found), default=0)
    if newest > attempt:
        raise SupersededError(
            f"attempt {newest} writes checkpoints in {where}: this process of the older attempt {attempt} stops"
        )


def surplus(found: Iterable[Version], written: Version, *, keep_last: int, keep: int | None) -> list[Version]:
    """Which of the finished checkpoints to remove after one has been written.

    Args:
        found: finished checkpoints.
        written: the one just written, by the attempt that asks.
        keep_last: how many stay, including that one.
        keep: step of another one that stays.
    """
    others = sorted((each for each in found if each.attempt <= written.attempt and each != written), reverse=True)
    # Checkpoints after the one just written were skipped when this process resumed: they are removed first.
    others.sort(key=lambda each: each > written)
    kept = max((each for each in others if each.step == keep), default=None)
    return [each for each in others[keep_last - 1 :] if each != kept]


def _finished(entries: list[_Entry]) -> dict[Version, Path]:
    """The folder of each; it has another name if its writer died while replacing it."""
    aside = {version: folder for version, folder, _ in entries if folder.name == version.folder + _ASIDE}
    return aside | {version: folder for version, folder, finished in entries if finished}


def _put_in_place(unfinished: Path, target: Path) -> Path:
    """Give a finished checkpoint its name; returns where the previous folder of that name is now, if it existed.

    That may be a corrupt one, which the resume has skipped, or an intact one: a stop saves before an evaluation, and
    after the resume it is saved again with what the evaluation has changed. Between the two renames a reader finds it
    under its temporary name.
    """
    before = target.with_name(target.name + _ASIDE)
    try:
        target.rename(before)
    except FileNotFoundError:
        unfinished.rename(target)
        return before
    try:
        unfinished.rename(target)
    except BaseException:
        before.rename(target)
        raise
    return before


def _discard(folder: Path) -> None:
    # Renamed first: a folder that is being removed must not be taken for a checkpoint.
    gone = folder.with_name(folder.name + _UNFINISHED)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _verify(folder: Path) -> dict[str, Any]:
    try:
        if folder.is_symlink():
            raise CorruptError("it is a symbolic link")
        # Others read its files by their names, whether or not the manifest has sums of them.
        for file in folder.iterdir():
            open_plain(file).close()
        manifest = json.loads(read_plain(folder / MANIFEST, LARGEST_MANIFEST))
        content, sums = manifest["content"], manifest["sha256"]
        for name, expected in sums.items():
            if sha256_of(file_in(folder, name)) != expected:
                raise CorruptError(f"the SHA-256 of {name} differs from its manifest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise CorruptError(f"{type(reason).__name__}: {reason}") from reason
    except OSError as reason:
        if reason.errno in _DAMAGED:
            raise CorruptError(f"{type(reason).__name__}: {reason}") from reason
        # A volume that does not respond may recover. Taking its checkpoint for damaged would mean resuming from an
        # older one, or from the beginning, and then removing it.
        raise ResumeError(f"the checkpoint {folder} cannot currently be read, and is not skipped: {reason}") from reason
    if not isinstance(content, dict):
        raise CorruptError("its manifest has no content")
    return content


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits.

    Raises:
        NotPlainError: it is a link or a device, for example.
        OSError: it cannot be read.
    """
    with open_plain(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
