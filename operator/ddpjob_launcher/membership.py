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
    """

    generation: int
    nodes: int
    formed: int
    members: tuple[tuple[int, int], ...] = ()

    def member(self, node: int) -> int:
        """The generation that has brought the pod of a node; 0 for the first one."""
        return dict(self.members).get(node, 0)

    def takes_a_place(self, node: int) -> bool:
        """Whether the pod of this node has come after the nodes met."""
        return self.member(node) > self.formed

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
        found = Membership(generation, int(read["nodes"]), int(read.get("formed", generation)), tuple(pairs))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return found if 0 <= found.formed <= found.generation and found.nodes > 0 else None


def newer_membership(path: str, than: Membership) -> Membership | None:
    """What the file says, if that is another membership and not an older one."""
    found = read_membership(path)
    return found if found is not None and found != than and found.generation >= than.generation else None
