"""When the node of a pod counts as lost.

The control plane says so of running pods, about 50 s after their node was heard of last (see observe.py). Of two kinds
of pods it says nothing, and time has to tell: of one that was assigned to a node that fell silent before it saw the
pod, and of one that is being deleted while nobody confirms it.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.observations.observed import PodRecord

SILENCE: Final = timedelta(seconds=60)
"""Longer than the control plane takes to mark a silent node: an attempt that begins later is kept away from it."""
SILENCE_OF_LOST: Final = timedelta(seconds=10)
"""Enough where another pod of the job has been marked on that node: only the node's return could help."""


def with_lost_nodes(pods: Iterable[PodRecord], now: datetime) -> tuple[PodRecord, ...]:
    """The pods, those marked as lost that their node has not taken notice of for too long."""
    known = tuple(pods)
    lost = nodes_lost(known)
    return tuple(
        replace(pod, node_lost=True) if (due := _lost_at(pod, lost)) is not None and now >= due else pod
        for pod in known
    )


def lost_at(pods: Iterable[PodRecord]) -> tuple[datetime, ...]:
    """When each pod that its node has not taken notice of will count as lost."""
    known = tuple(pods)
    lost = nodes_lost(known)
    return tuple(due for pod in known if (due := _lost_at(pod, lost)) is not None)


def nodes_lost(pods: Iterable[PodRecord]) -> frozenset[str]:
    """Names of the nodes that have pods which are marked as lost."""
    return frozenset(pod.node_name for pod in pods if pod.node_lost and pod.node_name is not None)


def _lost_at(pod: PodRecord, lost: frozenset[str]) -> datetime | None:
    if pod.unadmitted_since is None:
        return None
    return pod.unadmitted_since + (SILENCE_OF_LOST if pod.node_name in lost else SILENCE)
