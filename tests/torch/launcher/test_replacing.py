"""Which of the workers of a node that were killed are replaced, by what the ranks say in a real store."""

import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from torch.distributed import TCPStore

from ddpjob_launcher.replacing import READY, Replacing, ready_key, store_of

WORKERS = 3


class Node:
    """The workers of one node, of which some were killed."""

    def __init__(self, port: int, restarts: int, most: int) -> None:
        own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORKERS)}
        own |= {"TORCHELASTIC_RESTART_COUNT": str(restarts), "TORCHELASTIC_MAX_RESTARTS": str(most)}
        self.processes = [
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(WORKERS)
        ]
        self.context: Any = SimpleNamespace(
            subprocess_handlers={local: SimpleNamespace(proc=each) for local, each in enumerate(self.processes)},
            envs={local: {**own, "RANK": str(local)} for local in range(WORKERS)},
        )
        store = store_of(own)
        for rank in range(WORKERS):
            store.set(ready_key(rank), READY)
        self.agent: Any = SimpleNamespace(_remaining_restarts=most - restarts)
        self.replacing = Replacing(spares=0)
        self.replacing.use_agent(self.agent)
        self.replacing.offer({}, workers=WORKERS, restarts=most)
        self.replacing.begin_round()

    def kill(self, *locals_: int) -> None:
        for local in locals_:
            self.processes[local].send_signal(signal.SIGKILL)
            self.processes[local].wait()


@pytest.fixture
def server() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.mark.parametrize(
    ("restarts", "most", "replaced"),
    [(0, 3, [0, 2]), (1, 3, [0, 2]), (2, 3, []), (0, 1, [])],
    ids=["three left", "two left", "one left of three", "one left"],
)
def test_workers_killed_at_once_are_replaced_while_there_are_restarts_for_all_of_them(
    server: TCPStore, restarts: int, most: int, replaced: list[int]
) -> None:
    node = Node(server.port, restarts, most)
    try:
        assert node.replacing.killed(node.context) == []
        node.kill(0, 2)
        assert node.replacing.killed(node.context) == replaced
        assert node.agent._remaining_restarts == most - restarts, "all workers start again with one of them"
    finally:
        node.kill(*range(WORKERS))
