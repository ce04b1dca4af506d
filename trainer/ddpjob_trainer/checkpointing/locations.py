"""Where checkpoints are: a folder of a volume by its path, or an object store by its address."""

from pathlib import Path
from typing import Final

from ddpjob_trainer.checkpointing.object_storage import ObjectFolder, is_url
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.checkpointing.store import CheckpointStore

_FILE: Final = "file://"


def joined(location: str, name: str) -> str:
    """A location within another one; the same without a name."""
    if is_url(location):
        return f"{location.rstrip('/')}/{name}".rstrip("/")
    return str(Path(location) / name)


def store_of(location: str, *, attempt: int, keep_last: int, part: str | None = None) -> CheckpointStore:
    """The checkpoints at a location.

    Args:
        location: path of a folder, or address in an object store, such as `s3://bucket/jobs/uid`.
        attempt: of the job, to which this process belongs.
        keep_last: how many checkpoints are kept after a save, at least 1.
        part: name of one of several trainings.

    Raises:
        MisuseError: no package for such addresses is installed.
    """
    if is_url(location) and not location.startswith(_FILE):
        return ObjectFolder(location, part=part, attempt=attempt, keep_last=keep_last)
    return CheckpointFolder(Path(location.removeprefix(_FILE)), part=part, attempt=attempt, keep_last=keep_last)
