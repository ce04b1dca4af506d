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
        generation: number of the membership; each change of size is a new one.
        nodes: how many nodes.
    """

    generation: int
    nodes: int

    def set_environment(self, environment: MutableMapping[str, str]) -> None:
        """Put into the environment what torchrun and the program learn of it.

        Agents that have not heard of the same membership never meet: the id of the rendezvous is another one.
        """
        environment["DDPJOB_NODES"] = environment["PET_NNODES"] = str(self.nodes)
        environment["PET_RDZV_ID"] += f"-{self.generation}-{self.nodes}"


def read_membership(path: str) -> Membership | None:
    """What the file says; None where it says nothing that can be understood."""
    try:
        with open(path) as file:
            read = json.load(file)
        found = Membership(int(read["generation"]), int(read["nodes"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return found if found.generation >= 0 and found.nodes > 0 else None


def newer_membership(path: str, than: Membership) -> Membership | None:
    """What the file says, if that is another membership and not an older one."""
    found = read_membership(path)
    return found if found is not None and found != than and found.generation >= than.generation else None
