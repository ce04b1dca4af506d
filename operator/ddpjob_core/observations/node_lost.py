"""When the node of a pod counts as lost.

The control plane marks running pods about 50 s after it last heard from their node (see observe.py). It does not mark
two kinds of pods, for which time has to decide: one assigned to a node that fell silent before it saw the pod, and one
whose deletion is never confirmed.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.observations.observed import PodRecord

SILENCE: Final = timedelta(seconds=60)
"""Longer than the control plane takes to mark a silent node: an attempt that begins later avoids it."""
SILENCE_OF_LOST: Final = timedelta(seconds=10)
"""Enough if another pod of the job has been marked on that node: only the node's return could help."""


def with_lost_nodes(pods: Iterable[PodRecord], now: datetime) -> tuple[PodRecord, ...]:
    """The pods, with those marked as lost that their node has not acknowledged for too long."""
    known = tuple(pods)
    lost = nodes_lost(known)
    return tuple(
        replace(pod, node_lost=True) if (due := _lost_at(pod, lost)) is not None and now >= due else pod
        for pod in known
    )


def lost_at(pods: Iterable[PodRecord]) -> tuple[datetime, ...]:
    """When each pod that its node has not acknowledged will count as lost."""
    known = tuple(pods)
    lost = nodes_lost(known)
    return tuple(due for pod in known if (due := _lost_at(pod, lost)) is not None)


def nodes_lost(pods: Iterable[PodRecord]) -> frozenset[str]:
    """Names of the nodes that have pods marked as lost."""
    return frozenset(pod.node_name for pod in pods if pod.node_lost and pod.node_name is not None)


def _lost_at(pod: PodRecord, lost: frozenset[str]) -> datetime | None:
    if pod.unadmitted_since is None:
        return None
    return pod.unadmitted_since + (SILENCE_OF_LOST if pod.node_name in lost else SILENCE)
