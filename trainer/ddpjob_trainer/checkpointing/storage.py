"""Folders that are complete or not there at all, whatever a machine does meanwhile.

A checkpoint is a folder of files with a manifest of their SHA-256 sums, named `step-<step>.attempt-<attempt>`. It is
written under another name, forced to disk and renamed, so that its name is the proof that it was finished; the sums
notice what disks and networks do to it later. What the files hold is none of this module's business.

The attempt counts before the step. An attempt that had to begin before the last step of the one before it, because a
checkpoint was damaged or because a process thought dead finished writing one, is the training that goes on; one that
ends before its first checkpoint leaves the older attempt's newest as the newest. No lock is needed: whatever a process
of an older attempt still writes in the instant between its last look and its rename never comes first.
"""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "checkpoint.json"
DEFAULT_KEEP_LAST: Final = 3
_UNFINISHED: Final = ".unfinished"
_ASIDE: Final = f".0{_UNFINISHED}"
"""Ends the name of a checkpoint that makes room for another one of its step; no process has the number 0."""
_DAMAGED: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
"""What an open says of a folder whose files are not there, or of a manifest that names what cannot be a file."""
_NAME: Final = re.compile(rf"step-(\d+)\.attempt-(\d+)((?:\.\d+)?{re.escape(_UNFINISHED)})?")

_log = logging.getLogger(__name__)


class SupersededError(RuntimeError):
    """A newer attempt of the job writes here: this process is left over from an older one and must stop."""


class CorruptError(Exception):
    """A checkpoint's files are not what was written."""


class ResumeError(RuntimeError):
    """There are checkpoints, and none of them can be resumed from: nothing is trained from scratch in their place."""


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
"""A folder that is or is to become a checkpoint, and whether it is finished."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk whose files have been verified."""

    version: Version
    folder: Path
    manifest: dict[str, Any]
    """What was given to `save`, as JSON brings it back."""


class CheckpointFolder:
    """The checkpoints of one job. Only rank 0 uses it."""

    def __init__(self, folder: Path, *, attempt: int = 0, keep_last: int = DEFAULT_KEEP_LAST) -> None:
        """Args:
        folder: holds the checkpoints; made when the first one is saved.
        attempt: of the job that this process belongs to.
        keep_last: how many checkpoints stay after a save, at least 1.
        """
        if keep_last < 1:
            raise ValueError(f"keep_last={keep_last}: at least the newest checkpoint must stay")
        self._folder = folder
        self._attempt = attempt
        self._keep_last = keep_last

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._folder

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> Path:
        """Write a checkpoint and remove the oldest ones beyond `keep_last`.

        Args:
            step: completed optimizer steps.
            content: goes into the manifest; anything that JSON can hold.
            write: puts the checkpoint's files into the folder it is given.
            keep: step of another one that stays.

        Returns:
            The checkpoint's folder.

        Raises:
            SupersededError: a newer attempt writes here; nothing of it was touched.
            OSError: the volume does not take it; an earlier checkpoint is untouched.
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
            manifest = {"content": content, "sha256": {file.name: _sha256(file) for file in files}}
            (unfinished / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            for path in (*files, unfinished / MANIFEST, unfinished):
                _force_to_disk(path)
            self._refuse_if_superseded()
            before = _put_in_place(unfinished, target)
            _force_to_disk(self._folder)
            shutil.rmtree(before, ignore_errors=True)
        except Exception:
            # A newer attempt removes what this one has not finished: that is then the reason of whatever failed.
            self._refuse_if_superseded()
            raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._remove_oldest(version, keep)
        return target

    def newest(self) -> Iterator[Checkpoint]:
        """Sound checkpoints, the newest first; each one that is not is reported in the log and passed over.

        Raises:
            ResumeError: one cannot be read, which says nothing of what it holds.
        """
        seen: set[Version] = set()
        # Looked for again at the end: a left-over process of an older attempt may remove one and finish another.
        while found := {each: folder for each, folder in _finished(self._entries()).items() if each not in seen}:
            for version, folder in sorted(found.items(), reverse=True):
                seen.add(version)
                try:
                    yield Checkpoint(version, folder, _verify(folder))
                except CorruptError as reason:
                    _log.error("checkpoint %s is corrupt (%s): falling back to the one before", folder, reason)

    def versions(self) -> list[Version]:
        """All finished checkpoints, sound or not, the newest first."""
        return sorted(_finished(self._entries()), reverse=True)

    def _entries(self) -> list[_Entry]:
        """Every folder that is or is to become a checkpoint, and whether it is finished."""
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(entry.name), entry) for entry in self._folder.iterdir()]
        return [(Version(int(name[2]), int(name[1])), entry, name[3] is None) for name, entry in named if name]

    def _refuse_if_superseded(self) -> None:
        newest = max((version.attempt for version, _, _ in self._entries()), default=0)
        if newest > self._attempt:
            raise SupersededError(
                f"attempt {newest} writes checkpoints in {self._folder}: this process of attempt {self._attempt} "
                "is left over and stops"
            )

    def _remove_oldest(self, written: Version, keep: int | None) -> None:
        others = [each for each in self.versions() if each.attempt <= self._attempt and each != written]
        # What comes after the one just written was passed over when this process resumed: it is the first to go.
        others.sort(key=lambda each: each > written)
        kept = max((each for each in others if each.step == keep), default=None)
        for version in others[self._keep_last - 1 :]:
            if version == kept:
                continue
            try:
                _discard(self._folder / version.folder)
            except OSError as reason:
                _log.warning("the old checkpoint %s cannot be removed: %s", version.folder, reason)

    def _remove_unfinished(self) -> None:
        entries = self._entries()
        found = _finished(entries)
        for version, folder, finished in entries:
            if finished or version.attempt > self._attempt:
                continue
            if found.get(version) == folder:
                # Its writer has died while it replaced this one.
                folder.rename(self._folder / version.folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)


def _finished(entries: list[_Entry]) -> dict[Version, Path]:
    """The folder of each; that of one which a writer has put aside, and then died, has another name."""
    aside = {version: folder for version, folder, _ in entries if folder.name == version.folder + _ASIDE}
    return aside | {version: folder for version, folder, finished in entries if finished}


def _put_in_place(unfinished: Path, target: Path) -> Path:
    """Give a finished checkpoint its name; where what had the name before is now, if there was any.

    That may be a corrupt one, which resuming has passed over, or a sound one: a stop saves before an evaluation, and
    after the resume it is saved again with what the evaluation has changed. Between the two renames a reader finds it
    under the name that it has then.
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
    # Renamed first: a folder that is being removed must not look like a checkpoint.
    gone = folder.with_name(folder.name + _UNFINISHED)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _verify(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        content, sums = manifest["content"], manifest["sha256"]
        for name, expected in sums.items():
            if _sha256(folder / name) != expected:
                raise CorruptError(f"{name} has another SHA-256 than its manifest says")
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise CorruptError(f"{type(reason).__name__}: {reason}") from reason
    except OSError as reason:
        if reason.errno in _DAMAGED:
            raise CorruptError(f"{type(reason).__name__}: {reason}") from reason
        # A volume that does not answer may do so again. Whoever took its checkpoint for damaged would go back to an
        # older one, or to the beginning, and then remove it.
        raise ResumeError(f"the checkpoint {folder} cannot be read now, and is not passed over: {reason}") from reason
    if not isinstance(content, dict):
        raise CorruptError("its manifest holds no content")
    return content


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
