"""Several trainings in one process, such as folds or phases: each has checkpoints of its own, under a name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ddpjob_trainer.checkpointing.locations import joined, store_of
from ddpjob_trainer.checkpointing.object_storage import is_url
from ddpjob_trainer.checkpointing.storage import DEFAULT_KEEP_LAST
from ddpjob_trainer.checkpointing.store import CheckpointStore
from ddpjob_trainer.process.environment import JobEnvironment, MisuseError

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_TAKEN: Final = ("step-", "job.json")
"""Beginnings of what a job's folder holds itself."""

# Of this process, by folder: those without a name that have begun, and those with a name that are complete.
_begun: Final = set[str]()
_complete: Final = set[str]()


def folder_of(
    job: JobEnvironment, path: str | None, *, name: str | None, keep_last: int | None
) -> CheckpointStore | None:
    """Where a training of a job keeps its checkpoints, None if nowhere; the arguments are those of `of_job`.

    Raises:
        MisuseError: an older job should be continued, but its folder or the identity of this job is unknown; or the
            name cannot be that of a folder.
    """
    if name is not None:
        _check(name)
    own = joined(path, job.uid) if path else job.checkpoint_path
    if job.resume_from is not None and (own is None or not job.uid):
        raise MisuseError(
            "DDPJOB_RESUME_FROM needs DDPJOB_UID, and DDPJOB_CHECKPOINT_PATH or a folder given by the program"
        )
    if own is None:
        return None
    keep_last = keep_last or job.checkpoint_keep_last or DEFAULT_KEEP_LAST
    return store_of(own, part=name, attempt=job.attempt, keep_last=keep_last)


def _check(name: str) -> None:
    if not _NAME.fullmatch(name) or name.startswith(_TAKEN):
        raise MisuseError(
            f"the name of a training must be at most 63 letters, digits, dots, dashes and underscores, begin and end "
            f"with a letter or digit, and not begin with step-: {name!r}"
        )


@contextmanager
def training_in(location: str | None, name: str | None) -> Iterator[None]:
    """The training is in the body.

    A second training would resume from the last checkpoint of the first, which is complete, and do nothing; or, if the
    first has failed, continue with its weights. One with a name of its own may be tried again until it is complete.

    Args:
        location: of its checkpoints; without one there is nothing to resume from.
        name: of the training.

    Raises:
        MisuseError: this process has already trained with these checkpoints.
    """
    if location is None:
        yield
        return
    folder = location if is_url(location) else str(Path(location).absolute())
    if folder in (_begun if name is None else _complete):
        raise MisuseError(
            f"this process has already trained with the checkpoints in {folder}, from which a second training would "
            "resume: give each training a name of its own, such as train(..., name='fold-2')"
        )
    if name is None:
        _begun.add(folder)
    yield
    if name is not None:
        _complete.add(folder)
