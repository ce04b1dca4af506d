"""The rendezvous of a node that takes the place of a lost one: it joins none, and reads what came of the others'."""

# ruff: noqa: PLC0415 -- torch is the image's, and what it costs to import is the agent's alone
# ruff: noqa: ANN401 -- torch's objects, of whatever version the image has

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .places import Place

# The name of the backend, for torch.
BACKEND = "ddpjob-place"


def use_place(place: Place, store: Any, *, node: int, nodes: int) -> None:
    """Let torch's agent start the workers of this node with the ranks that it has had from the beginning.

    Its store is that of the agents which have met: the lost one was never counted at the end of the training, so this
    one is in its place.

    Args:
        place: what node 0 has said.
        store: of the rendezvous.
        node: rank of this node.
        nodes: how many train together.
    """
    from torch.distributed import PrefixStore
    from torch.distributed.elastic.rendezvous import RendezvousHandler, rendezvous_handler_registry
    from torch.distributed.elastic.rendezvous.api import RendezvousInfo, RendezvousStoreInfo

    class Substitute(RendezvousHandler):  # type: ignore[misc]  # the linter has no torch
        """Gives out the place, and lets nobody else in."""

        def __init__(self, run_id: str) -> None:
            self._run_id = run_id

        def get_backend(self) -> str:
            return BACKEND

        @property
        def use_agent_store(self) -> bool:
            return True

        def next_rendezvous(self) -> Any:
            keys = PrefixStore(place.prefix, store)
            address, port = (
                keys.get(key).decode()
                for key in (RendezvousStoreInfo.MASTER_ADDR_KEY, RendezvousStoreInfo.MASTER_PORT_KEY)
            )
            return RendezvousInfo(keys, node, nodes, RendezvousStoreInfo(address, int(port)))

        def is_closed(self) -> bool:
            return False

        def set_closed(self) -> None:
            """The others close theirs."""

        def num_nodes_waiting(self) -> int:
            return 0

        def get_run_id(self) -> str:
            return self._run_id

        def shutdown(self) -> bool:
            return True

    rendezvous_handler_registry.register(BACKEND, lambda parameters: Substitute(parameters.run_id))
