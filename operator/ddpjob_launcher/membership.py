"""Which nodes of an elastic job train together, as the operator says in a file that the kubelet keeps up to date."""

# ruff: noqa: PTH123 -- a plain path of the environment

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

# Seconds between two looks at the file.
LOOK_EVERY = 0.2


@dataclass(frozen=True)
class Membership:
    """The nodes from 0 on that train together.

    Attributes:
        generation: number of the membership; each change is a new one.
        nodes: how many nodes.
        formed: the generation in which these nodes have met by a rendezvous of torch's; what has changed since is which
            pods are the nodes.
        members: ordinals with the generation that has brought the node's pod; the first pods of the attempt, which have
            0, are left out.
        spares: ordinals of the nodes that were spare nodes before, with the numbers of these.
    """

    generation: int
    nodes: int
    formed: int
    members: tuple[tuple[int, int], ...] = ()
    spares: tuple[tuple[int, int], ...] = ()

    def member(self, node: int) -> int:
        """The generation that has brought the pod of a node; 0 for the first one."""
        return dict(self.members).get(node, 0)

    def takes_a_place(self, node: int) -> bool:
        """Whether the pod of this node has come after the nodes met."""
        return self.member(node) > self.formed

    def place_of(self, spare: int) -> int | None:
        """The ordinal of the node that a spare has become; None as long as it waits."""
        return next((node for node, number in self.spares if number == spare and node < self.nodes), None)

    def set_place(self, environment: MutableMapping[str, str], node: int) -> None:
        """Put into the environment of a spare what it has in common with a pod that was created for this node."""
        environment["DDPJOB_NODE_RANK"], environment["DDPJOB_MEMBER"] = str(node), str(self.member(node))
        # torch orders the nodes by this name, as text, and resolves that of node 0 alone.
        first, _, domain = environment["DDPJOB_RENDEZVOUS_HOST"].partition(".")
        stem, _, zeros = first.rpartition("-")
        environment["PET_LOCAL_ADDR"] = f"{stem}-{node:0{len(zeros)}d}-{self.member(node)}.{domain}"

    def set_environment(self, environment: MutableMapping[str, str]) -> None:
        """Put into the environment what torchrun and the program learn of it.

        Agents that have not heard of the same membership never meet: the id of the rendezvous is another one.
        """
        environment["DDPJOB_NODES"] = environment["PET_NNODES"] = str(self.nodes)
        environment["PET_RDZV_ID"] += f"-{self.formed}-{self.nodes}"
        environment["DDPJOB_GENERATION"] = str(self.generation)


def read_membership(path: str) -> Membership | None:
    """What the file says; None where it says nothing that can be understood."""
    try:
        with open(path) as file:
            read = json.load(file)
        generation = int(read["generation"])
        members = read.get("members", {})
        pairs = sorted((int(node), int(member)) for node, member in members.items())
        spares = sorted((int(node), int(number)) for node, number in read.get("spares", {}).items())
        formed = int(read.get("formed", generation))
        found = Membership(generation, int(read["nodes"]), formed, tuple(pairs), tuple(spares))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return found if 0 <= found.formed <= found.generation and found.nodes > 0 else None


def newer_membership(path: str, than: Membership) -> Membership | None:
    """What the file says, if that is another membership and not an older one."""
    found = read_membership(path)
    return found if found is not None and found != than and found.generation >= than.generation else None
