"""Pods that their node has taken but cannot start, for want of a volume."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.situation import Situation

USUAL_MOUNT: Final = timedelta(seconds=10)
"""How long the volumes of a pod may take to be mounted before anything is suspected."""
_LONGEST_WAIT: Final = timedelta(minutes=5)


def unmounted_since(situation: Situation) -> datetime | None:
    """Since when a pod of the attempt waits for a volume; None if none does."""
    present = situation.attempt.present
    waiting = (pod for pod in present if pod.unmounted_since is not None and node_state(pod) is NodeState.PENDING)
    return min((pod.unmounted_since for pod in waiting if pod.unmounted_since is not None), default=None)


def next_check(situation: Situation, name: ObjectName, since: datetime) -> datetime:
    """When to ask the API server whether an object that no watch shows still exists.

    Only asking can tell, and a volume may take long for many other reasons: the first time is after `USUAL_MOUNT`,
    the others after twice the time that has passed, and at last every five minutes.

    Args:
        situation: what is known.
        name: of the object.
        since: when the first pod began to wait.
    """
    known = situation.observed.known.get(name)
    if known is None or known <= since:
        return since + USUAL_MOUNT
    return known + min(max(known - since, USUAL_MOUNT), _LONGEST_WAIT)
