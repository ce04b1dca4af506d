"""Pods on the host network that find no node: the scheduler's words about ports, in those of the job."""

from collections.abc import Mapping

from ddpjob_core.children.host_network import on_host_network, ports_in_common, ports_of
from ddpjob_core.observations.situation import Situation

_NO_FREE_PORTS = "didn't have free ports"
"""What the scheduler says of nodes on which another pod has a port that this one asks for."""


def ports_taken(situation: Situation, said: str) -> str | None:
    """Why a pod that waits for a node cannot have the ports it asks for, and what to do; None where it is not that.

    Args:
        situation: what is known.
        said: the scheduler's message.
    """
    if _NO_FREE_PORTS not in said or not on_host_network(situation.spec.template):
        return None
    ours = ports_of(situation.spec, situation.status.procs_per_node or 1)
    rivals = situation.observed.port_rivals
    told = [f"DDPJob {name} takes {_listed(ports_in_common(ours, theirs))} too" for name, theirs in rivals.items()]
    if not told:
        told = [f"another pod, of another job or of this one, has one of {_listed(ours)} on each node that is left"]
    return (
        f"on the host network each node has a port once; {'; '.join(told)}: choose other ports for one of the jobs "
        "(spec.rendezvous.port, spec.metrics.port), wait for the other's end, or ask for no more nodes than there are"
    )


def _listed(ports: Mapping[str, range]) -> str:
    return " and ".join(f"{_range(numbers)} ({field})" for field, numbers in ports.items())


def _range(ports: range) -> str:
    return str(ports.start) if len(ports) == 1 else f"{ports.start}-{ports.stop - 1}"
