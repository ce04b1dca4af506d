"""The rank that slows down the others, in words, and what to do about it."""

from collections.abc import Mapping
from typing import Final

from ddpjob_core.api.status import DDPJobStatus, SlowPart

_DOING: Final[Mapping[SlowPart, str]] = {
    SlowPart.DATA: "waiting for its data",
    SlowPart.COMPUTING: "computing",
    SlowPart.CHECKPOINT: "writing checkpoints",
}
_TO_DO: Final[Mapping[SlowPart, str]] = {
    SlowPart.DATA: "compare the volumes of the nodes, or read ahead with data_workers",
    SlowPart.COMPUTING: "see whether the pod reaches limits.cpu, or what else runs on its node",
    SlowPart.CHECKPOINT: "save less often, or asynchronously, or to a faster volume",
}


def slowest_rank(status: DDPJobStatus) -> str:
    """Which rank slows down the others, where it runs, and with what; "" if none does."""
    slowest = status.slowest
    if slowest is None:
        return ""
    node = f" on node {slowest.node_name}" if slowest.node_name else ""
    return (
        f"rank {slowest.rank} ({slowest.pod}{node}) takes {slowest.factor:g} times as long as the others: "
        f"{_DOING[slowest.what]}"
    )


def what_slows(status: DDPJobStatus) -> str:
    """What to do about it; "" if no rank slows down the others."""
    return "" if status.slowest is None else _TO_DO[status.slowest.what]
