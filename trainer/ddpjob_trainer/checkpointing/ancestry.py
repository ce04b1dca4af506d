"""Which job a folder of checkpoints belongs to, so that a job can continue where an older one stopped.

The folders of all jobs on a volume are next to each other, each named by a uid, which is hard to remember. A small file
in each holds the job's name. An older job's files are read and never changed.
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
    """The job to continue has no intact checkpoint: nothing is trained from scratch instead."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Identity of a DDPJob."""

    name: str
    namespace: str
    uid: str


def sign(folder: Path, job: JobIdentity) -> None:
    """Write a job's identity into its folder unless it is there already; a reader never sees half of it.

    Raises:
        OSError: the volume cannot be written to.
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


def older_folders(own: Path, job: JobIdentity, name: str, part: str | None = None) -> Iterator[CheckpointFolder]:
    """Folders next to a job's own with checkpoints of other jobs of this name in its namespace.

    A name may have been used several times: the one whose newest checkpoint was written last comes first. With a part
    only the checkpoints of that training count.
    """
    found: list[tuple[float, Path]] = []
    for path, signed in _signed(own.parent):
        if (signed.name, signed.namespace) == (name, job.namespace) and signed.uid != job.uid:
            folder = CheckpointFolder(path, part=part)
            versions = folder.versions()
            # The older job may still be running, and remove the one just listed.
            with contextlib.suppress(FileNotFoundError, IndexError):
                found.append(((folder.path / versions[0].folder).stat().st_mtime, path))
    for _, path in sorted(found, reverse=True):
        yield CheckpointFolder(path, part=part)


def was_there(own: Path, job: JobIdentity, name: str) -> bool:
    """Whether another job of this name in its namespace has a folder, with or without checkpoints."""
    others = (signed for _, signed in _signed(own.parent) if signed.uid != job.uid)
    return any((each.name, each.namespace) == (name, job.namespace) for each in others)


def nothing_to_resume(own: Path, job: JobIdentity, name: str) -> NothingToResumeError:
    """The error for a name without an intact checkpoint; lists the jobs that have folders there."""
    others = (signed for _, signed in _signed(own.parent) if signed.namespace == job.namespace)
    names = sorted({signed.name for signed in others if signed.uid != job.uid})
    there = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return NothingToResumeError(
        f"resumeFrom: job {name!r} has no intact checkpoint in {own.parent}; jobs with checkpoints there: "
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
