"""What keeps the objects of an attempt from being made: names that are taken, and what the API server refuses."""

from datetime import timedelta
from typing import Final

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.names import service_name
from ddpjob_core.observations.situation import Situation

TRY_AGAIN_AFTER: Final = timedelta(seconds=10)
"""How long a name that is taken or a quota that is used up is left alone before the next try."""


def taken_names(situation: Situation) -> dict[str, str]:
    """Objects that stand where this job's own should, mapped to whose they are: as long as they do, nothing is made.

    They are those of a job of the same name that was just deleted, which the garbage collector is about to remove, or
    somebody's own.
    """
    attempt = situation.attempt
    missing = [name for name, pod in zip(attempt.names, attempt.nodes, strict=True) if pod is None]
    wanted = [f"pod {name}" for name in missing]
    if situation.observed.service is None:
        wanted.append(f"service {service_name(situation.job.name)}")
    return {name: situation.observed.foreign[name] for name in wanted if name in situation.observed.foreign}


def object_name(manifest: Manifest) -> str:
    """Kind and name of an object as rejections name it, as `pod digits-a0-1`."""
    return f"{str(manifest['kind']).lower()} {manifest['metadata']['name']}"
