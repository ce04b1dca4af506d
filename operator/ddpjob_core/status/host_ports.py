"""Pods on the host network that find no node: what the scheduler says about ports, in terms of the job."""

from collections.abc import Mapping

from ddpjob_core.children.host_network import ports_in_common, ports_of
from ddpjob_core.observations.situation import Situation

_NO_FREE_PORTS = "didn't have free ports"
"""What the scheduler says about nodes where another pod holds a port that this one requests."""


def ports_taken(situation: Situation, scheduler_message: str) -> str | None:
    """Why a waiting pod cannot have the ports it requests, and what to do; None if ports are not the reason.

    Args:
        situation: what is known.
        scheduler_message: the scheduler's message.
    """
    if _NO_FREE_PORTS not in scheduler_message or not situation.on_host_network:
        return None
    ours = ports_of(situation.spec, situation.status.procs_per_node or 1)
    rivals = situation.observed.port_rivals
    holders = [f"DDPJob {name} also takes {_listed(ports_in_common(ours, theirs))}" for name, theirs in rivals.items()]
    if not holders:
        holders = [f"another pod, of this or another job, holds one of {_listed(ours)} on each remaining node"]
    return (
        f"on the host network, each port exists once per node; {'; '.join(holders)}: "
        "choose other ports for one of the jobs (spec.rendezvous.port, spec.metrics.port), "
        "wait until it has ended, or request fewer nodes"
    )


def _listed(ports: Mapping[str, range]) -> str:
    return " and ".join(f"{_range(numbers)} ({field})" for field, numbers in ports.items())


def _range(ports: range) -> str:
    return str(ports.start) if len(ports) == 1 else f"{ports.start}-{ports.stop - 1}"
