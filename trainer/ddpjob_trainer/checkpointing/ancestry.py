"""Whose folder of checkpoints is whose, so that a job can go on where an older one has stopped.

The folders of all jobs that share a volume lie beside each other, each named by a uid that nobody remembers. A small
file in each says the name. An older job's files are read and never changed.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ddpjob_trainer.checkpointing.storage import CheckpointFolder, ResumeError

IDENTITY: Final = "job.json"
_MOST_NAMES: Final = 20


class NothingToResumeError(ResumeError):
    """The job that is to be continued has left no sound checkpoint: nothing is trained from scratch in its name."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Who a DDPJob is."""

    name: str
    namespace: str
    uid: str


def sign(folder: Path, job: JobIdentity) -> None:
    """Write into a folder whose it is, where that is not there yet; never seen half written.

    Raises:
        OSError: the volume does not take it.
    """
    if _read(folder) == job:
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{IDENTITY}.{os.getpid()}"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(job), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / IDENTITY)


def older_folders(own: Path, job: JobIdentity, name: str) -> Iterator[CheckpointFolder]:
    """Folders beside a job's own with checkpoints of other jobs of this name in its namespace.

    A name can have been used again and again: the one whose newest checkpoint was written last comes first.
    """
    found: list[tuple[float, Path]] = []
    for path, signed in _signed(own.parent):
        if (signed.name, signed.namespace) == (name, job.namespace) and signed.uid != job.uid:
            versions = CheckpointFolder(path).versions()
            # The older job may still run, and remove the one that has just been listed.
            with contextlib.suppress(FileNotFoundError, IndexError):
                found.append(((path / versions[0].folder).stat().st_mtime, path))
    for _, path in sorted(found, reverse=True):
        yield CheckpointFolder(path)


def nothing_to_resume(own: Path, job: JobIdentity, name: str) -> NothingToResumeError:
    """The error where no folder of this name holds a sound checkpoint; names the jobs that have folders there."""
    others = (signed for _, signed in _signed(own.parent) if signed.namespace == job.namespace)
    names = sorted({signed.name for signed in others if signed.uid != job.uid})
    there = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return NothingToResumeError(
        f"resumeFrom: job {name!r} has left no sound checkpoint in {own.parent}; jobs that have saved there: "
        f"{there or 'none'}"
    )


def _signed(base: Path) -> Iterator[tuple[Path, JobIdentity]]:
    for path in base.iterdir() if base.is_dir() else ():
        signed = _read(path)
        if signed is not None:
            yield path, signed


def _read(folder: Path) -> JobIdentity | None:
    try:
        fields = json.loads((folder / IDENTITY).read_text(encoding="utf-8"))
        values = [fields[name] for name in ("name", "namespace", "uid")]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return JobIdentity(*values) if all(isinstance(value, str) for value in values) else None
