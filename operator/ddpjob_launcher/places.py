"""What node 0 tells the others about nodes that were lost: keys of the store where the launchers meet.

The pods of the nodes that are lost have others in their place, which do not join torch's rendezvous: all of its agents
would start their workers again. Such a node learns from node 0 what it would have learned by joining.
"""

# ruff: noqa: PLC0415 -- torch is the image's, and what it costs to import is the agent's alone

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

# Seconds for one operation of the store, which is in node 0's launcher.
_STORE = timedelta(seconds=5)
_GONE_ON = "gone on"


@dataclass(frozen=True)
class Place:
    """What a node that takes another's place has to know of the round of workers.

    Attributes:
        prefix: of the keys that torch's agents use in this round.
        restarts: how often all workers have started again.
    """

    prefix: str
    restarts: int


class Places:
    """The places of one rendezvous."""

    def __init__(self, host: str, port: int, run_id: str) -> None:
        """Connect to the store of the rendezvous.

        Args:
            host: of node 0.
            port: of the rendezvous.
            run_id: of the rendezvous.

        Raises:
            RuntimeError: it cannot be reached.
        """
        from torch.distributed import PrefixStore, TCPStore

        self.store: Any = TCPStore(host, port, is_master=False, timeout=_STORE, wait_for_workers=False)
        self._keys: Any = PrefixStore(f"ddpjob/places/{run_id}", self.store)

    def give(self, node: int, member: int, place: Place) -> None:
        """Let the pod that the generation `member` has brought take the place of this node.

        Raises:
            RuntimeError: the store has gone; as everywhere.
        """
        self._keys.set(f"{node}/{member}", json.dumps(asdict(place)))

    def given(self, node: int, member: int) -> Place | None:
        """The place of the pod that the generation `member` has brought; None as long as it has none."""
        key = f"{node}/{member}"
        return Place(**json.loads(self._keys.get(key))) if self._keys.check([key]) else None

    def go_on(self, generation: int) -> None:
        """Tell the other nodes that the ranks go on in this generation, in the processes that they have."""
        self._keys.set(_GONE_ON, str(generation))

    def gone_on(self) -> int:
        """The generation in which the ranks go on; 0 if they have not had to."""
        return int(self._keys.get(_GONE_ON)) if self._keys.check([_GONE_ON]) else 0
