"""Which job a folder of checkpoints belongs to, so that a job can continue where an older one stopped.

The folders of all jobs on a volume are next to each other, each named by a uid, which is hard to remember. A small file
in each holds the job's name. An older job's files are read and never changed.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from ddpjob_trainer.checkpointing.storage import ResumeError
from ddpjob_trainer.checkpointing.store import CheckpointStore

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


def sign(store: CheckpointStore, job: JobIdentity) -> None:
    """Write a job's identity next to its checkpoints unless it is there already.

    Raises:
        OSError: it cannot be written.
    """
    if _read(store) != job:
        store.write_note(IDENTITY, json.dumps(asdict(job)))


def older_stores(own: CheckpointStore, job: JobIdentity, name: str) -> Iterator[CheckpointStore]:
    """Checkpoints of other jobs of this name in the same namespace, next to a job's own.

    A name may have been used several times: the one whose newest checkpoint was written last comes first. Of one of
    several trainings only the checkpoints of its name count.

    Raises:
        OSError: they cannot be listed.
    """
    found: list[tuple[float, str, CheckpointStore]] = []
    for store, signed in _signed(own):
        if (signed.name, signed.namespace) == (name, job.namespace) and signed.uid != job.uid:
            # The older job may still be running, and remove the one just listed.
            with contextlib.suppress(FileNotFoundError, IndexError):
                found.append((store.written(store.versions()[0]), str(store), store))
    for _, _, store in sorted(found, key=lambda each: each[:2], reverse=True):
        yield store


def was_there(own: CheckpointStore, job: JobIdentity, name: str) -> bool:
    """Whether another job of this name in its namespace has left its identity, with or without checkpoints."""
    others = (signed for _, signed in _signed(own) if signed.uid != job.uid)
    return any((each.name, each.namespace) == (name, job.namespace) for each in others)


def nothing_to_resume(own: CheckpointStore, job: JobIdentity, name: str) -> NothingToResumeError:
    """The error for a name without an intact checkpoint; lists the jobs that have checkpoints there."""
    others = (signed for _, signed in _signed(own) if signed.namespace == job.namespace)
    names = sorted({signed.name for signed in others if signed.uid != job.uid})
    there = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return NothingToResumeError(
        f"resumeFrom: job {name!r} has no intact checkpoint in {own.parent}; jobs with checkpoints there: "
        f"{there or 'none'}"
    )


def _signed(own: CheckpointStore) -> Iterator[tuple[CheckpointStore, JobIdentity]]:
    for store in own.neighbours():
        signed = _read(store)
        if signed is not None:
            yield store, signed


def _read(store: CheckpointStore) -> JobIdentity | None:
    try:
        fields = json.loads(store.note(IDENTITY))
        values = [fields[name] for name in ("name", "namespace", "uid")]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return JobIdentity(*values) if all(isinstance(value, str) for value in values) else None
