"""Where the ranks of the current attempt answer /progress."""

from collections.abc import Iterable, Iterator

from ddpjob_core.observations.observed import Running
from ddpjob_core.observations.situation import Situation
from ddpjob_core.wire.progress import PollTarget


def poll_targets(situation: Situation, nodes: Iterable[int], local_ranks: Iterable[int]) -> Iterator[PollTarget]:
    """The targets, node by node, except nodes whose pods do not run or have no address.

    Args:
        situation: what is known.
        nodes: ordinals of the nodes to poll.
        local_ranks: which of their ranks.
    """
    attempt, processes = situation.attempt, situation.status.procs_per_node or 1
    for ordinal in nodes:
        pod = attempt.nodes[ordinal]
        if pod is None or pod.pod_ip is None or not isinstance(pod.trainer, Running):
            continue
        for local_rank in local_ranks:
            yield PollTarget(
                attempt.number,
                pod.pod_ip,
                situation.spec.metrics.port + local_rank,
                rank=ordinal * processes + local_rank,
                ordinal=ordinal,
            )
