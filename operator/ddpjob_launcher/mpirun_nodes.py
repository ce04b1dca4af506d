"""The nodes as mpirun on node 0 sees them: its launch line, their names, and which of them are missing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .rendezvous import Page


def hostfile(hosts: list[str], slots: int) -> str:
    """The nodes in the order of their ordinals: mpirun counts ranks in the order of the lines."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def mpirun_command(mpirun: str, hosts: Path, ranks: int, rank_command: list[str]) -> list[str]:
    """The launch line. A rank is bound to no core: torch has threads of its own."""
    options = ["--hostfile", str(hosts), "-np", str(ranks), "--map-by", "slot", "--bind-to", "none"]
    return [mpirun, *options, *rank_command]


def mpirun_environment(ssh: list[str], nodes: int) -> dict[str, str]:
    """Lets Open MPI 4 and 5 reach the nodes by our ssh, and from here alone: the others are not each other's clients.

    Each connection stays for as long as the daemon that it has started: by its end a node knows that mpirun is gone. So
    there have to be as many at a time as there are nodes, where the default is 128.
    """
    agent = " ".join(ssh)
    return {
        "OMPI_MCA_plm_rsh_agent": agent,
        "PRTE_MCA_plm_ssh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": str(max(nodes, 128)),
        "PRTE_MCA_plm_ssh_num_concurrent": str(max(nodes, 128)),
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
    }


def node_name(first: str, ordinal: int, nodes: int) -> str:
    """The name of a node, given that of node 0, `<pod>-<ordinal>.<service>...`: ordinals are equally long."""
    host, dot, domain = first.partition(".")
    return f"{host.rpartition('-')[0]}-{ordinal:0{len(str(nodes - 1))}d}{dot}{domain}"


class MissingNodes:
    """What keeps node 0 from each node that it waits for, shown as one: of the first of them, and of how many."""

    def __init__(self, page: Page) -> None:
        """Show it on a page."""
        self._page = page
        self._problems: dict[int, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def of(self, ordinal: int) -> Page:
        """The page of one node."""
        return _PageOfNode(self, ordinal)

    def found(self, ordinal: int) -> None:
        """A node is not waited for any more."""
        self.set(ordinal, None)

    def set(self, ordinal: int, problem: tuple[str, str] | None) -> None:
        """What keeps node 0 from a node now."""
        with self._lock:
            self._problems.pop(ordinal, None)
            if problem is not None:
                self._problems[ordinal] = problem
            if self._problems:
                reason, message = self._problems[min(self._problems)]
                more = len(self._problems) - 1
                self._page.show(reason, f"{message}, and {more} more" if more else message)


class _PageOfNode:
    def __init__(self, missing: MissingNodes, ordinal: int) -> None:
        self._missing = missing
        self._ordinal = ordinal

    def show(self, reason: str, message: str) -> None:
        self._missing.set(self._ordinal, (reason, message))
