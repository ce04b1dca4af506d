"""What the checkpoints of a job are to those who save and resume, wherever they are."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ddpjob_trainer.checkpointing.storage import Checkpoint, Version


class CheckpointStore(Protocol):
    """The checkpoints of a job, or of one of its trainings, wherever they are. Only rank 0 uses it."""

    def __str__(self) -> str:
        """Where it is, for people."""

    @property
    def part(self) -> str | None:
        """Name of one of several trainings of the job, None if there is only one."""

    @property
    def parent(self) -> str:
        """Where the jobs next to this one are, for people."""

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> object:
        """Write a checkpoint and remove the oldest ones beyond those to keep.

        Args:
            step: completed optimizer steps.
            content: for the manifest; anything that JSON can hold.
            write: writes the checkpoint's files into the given folder.
            keep: step of another one to keep.

        Raises:
            SupersededError: a newer attempt writes here; its files were not touched.
            OSError: it cannot be written; earlier checkpoints are untouched.
        """

    def newest(self) -> Iterator[Checkpoint]:
        """Intact checkpoints, the newest first; each corrupt one is logged and skipped.

        Raises:
            ResumeError: one cannot be read, so it may be intact.
        """

    def versions(self) -> list[Version]:
        """All finished checkpoints, intact or not, the newest first.

        Raises:
            OSError: they cannot be listed.
        """

    def written(self, version: Version) -> float:
        """When a finished checkpoint was written, in seconds.

        Raises:
            OSError: it is gone.
        """

    def note(self, name: str) -> str:
        """The text of a small file of the job.

        Raises:
            OSError: there is none, or it cannot be read.
            ValueError: it cannot be decoded.
        """

    def write_note(self, name: str, text: str) -> None:
        """Write a small file of the job; a reader never sees half of it.

        Raises:
            OSError: it cannot be written.
        """

    def neighbours(self) -> "Iterator[CheckpointStore]":
        """Everything where the checkpoints of this job and of other jobs are, for the same part.

        Raises:
            OSError: they cannot be listed.
        """
