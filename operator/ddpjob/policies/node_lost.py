"""When the node of a pod counts as lost.

The control plane says so of running pods, about 50 s after their node was heard of last (see observe.py). Of two kinds
of pods it says nothing, and time has to tell: of one that was assigned to a node that fell silent before it saw the
pod, and of one that is being deleted while nobody confirms it.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from ddpjob.observed import PodRecord

SILENCE: Final = timedelta(seconds=60)
"""Longer than the control plane takes to mark a silent node: an attempt that begins later is kept away from it."""


def with_lost_nodes(pods: Iterable[PodRecord], now: datetime) -> tuple[PodRecord, ...]:
    """The pods, those marked as lost that their node has not taken notice of for too long."""
    return tuple(replace(pod, node_lost=True) if _is_overdue(pod, now) else pod for pod in pods)


def lost_at(pods: Iterable[PodRecord]) -> tuple[datetime, ...]:
    """When each pod that its node has not taken notice of will count as lost."""
    return tuple(pod.unadmitted_since + SILENCE for pod in pods if pod.unadmitted_since is not None)


def _is_overdue(pod: PodRecord, now: datetime) -> bool:
    return pod.unadmitted_since is not None and now >= pod.unadmitted_since + SILENCE
