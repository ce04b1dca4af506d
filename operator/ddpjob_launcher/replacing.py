"""Replaces a worker that was killed, or those of a lost node, while the others of the job keep their processes.

The program has to be made for it, as one with the trainer's library is: its ranks say in the store where they meet that
they can go on with another process in the place of a lost one, and read there how many were replaced. torch's agents
notice nothing. In all other cases torch restarts all workers, as it would without this.
"""

# ruff: noqa: PLC0415 -- torch is the image's, and what it costs to import is the agent's alone
# ruff: noqa: ANN401, SLF001 -- torch's objects, of whatever version the image has

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .faults import fault_file
from .signals import STOP_SIGNALS
from .spare_processes import SpareProcesses, blocked_stops, worker_arguments
from .torch_patches import round_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The keys of the store; ddpjob_trainer.process.meeting has the same.
GENERATION = "ddpjob/generation"
SUBSTITUTED = "ddpjob/substituted"
MEMBERSHIP = "ddpjob/membership"
ABANDONED = "ddpjob/abandoned"
READY = "1"
# What says to the workers that the ranks may rely on this.
OFFER = "DDPJOB_REPLACES_RANKS"
_MEMBER = "DDPJOB_MEMBER"
# Seconds for one operation of the store, which is in a process of this job.
_STORE = timedelta(seconds=5)
# Looks at the workers between two looks at whether spare processes are of use: they are ten a second.
_LOOKS = 20


def ready_key(rank: int) -> str:
    """The key under which a rank says whether it can go on without the process of another one."""
    return f"ddpjob/ready/{rank}"


def holder_key(rank: int) -> str:
    """The key that says which generation of the membership has brought the pod that a rank is in."""
    return f"ddpjob/holder/{rank}"


def met_key(generation: int) -> str:
    """The key that counts the ranks of a generation which have found each other."""
    return f"ddpjob/met/{generation}/process group"


def store_of(environment: Mapping[str, str]) -> Any:
    """The store in which the ranks of one round of workers meet, below keys of our own.

    Raises:
        RuntimeError: it cannot be reached.
    """
    from torch.distributed import PrefixStore, TCPStore

    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    store = TCPStore(host, port, is_master=False, timeout=_STORE, wait_for_workers=False)
    return PrefixStore(f"ddpjob/round/{environment['TORCHELASTIC_RESTART_COUNT']}", store)


def may_replace(code: int, *, ready: bool, abandoned: bool, restarts: int, most: int) -> bool:
    """Whether a worker is replaced, or all restart.

    Args:
        code: that it ended with; below 0 a signal. A program that ends by itself would do so again, on each rank.
        ready: whether all ranks can go on without it.
        abandoned: whether they have tried, and could not.
        restarts: of processes so far, all kinds counted.
        most: of them.
    """
    killed = code < 0 and -code not in STOP_SIGNALS
    return killed and ready and not abandoned and restarts < most


class Replacing:
    """The workers of this node, in one round after the other."""

    def __init__(self, spares: int) -> None:
        """Args:
        spares: processes that are kept ready to take a worker's place.
        """
        self._agent: Any = None
        self._spares = SpareProcesses(spares)
        self._offered = False
        self._store: Any = None
        self._looks = 0
        # The commands of the workers that were replaced, by local rank: a spare process was started with another one.
        self._commands: dict[int, Any] = {}
        # Replacements in earlier rounds of workers, and in this one, as far as this node knows.
        self.earlier = self.now = 0
        # Whether torch's agents can no longer start all workers again: one of them is not among those that have met.
        self.final = False

    def remember(self, local: int, command: Sequence[str]) -> None:
        """Note what a worker was to be started with, whose process was ready before."""
        self._commands[local] = command

    def offer(
        self, environment: dict[str, str] | os._Environ[str], *, workers: int, restarts: int, nodes_return: bool = False
    ) -> None:
        """Say to the workers that are started with this environment whether they may rely on it.

        Args:
            environment: of the workers.
            workers: of all nodes.
            restarts: of processes, at most.
            nodes_return: whether a node that is lost comes back in another pod.
        """
        self._offered = workers > 1 and (restarts > 0 or nodes_return)
        if self._offered:
            environment[OFFER] = "1"

    def use_agent(self, agent: Any) -> None:
        """Remember torch's agent, which knows its workers by their process ids."""
        self._agent = agent

    def prefix(self) -> str:
        """The prefix of the keys that torch's agents use in this round; "" where the nodes do not meet by keys."""
        handler = self._agent._worker_group.spec.rdzv_handler
        return round_prefix(handler) if hasattr(handler, "_state_holder") else ""

    def begin_round(self) -> None:
        """All workers start."""
        self._store, self._looks = None, 0
        self._commands = {}
        self.earlier, self.now = self.earlier + self.now, 0

    def end(self) -> None:
        """No worker is replaced any longer."""
        self._spares.close()

    def killed(self, context: Any) -> list[int]:
        """The local ranks of workers that were killed and are to be replaced."""
        if not self._offered:
            return []
        codes = {local: handler.proc.poll() for local, handler in context.subprocess_handlers.items()}
        ended = {local: code for local, code in codes.items() if code}
        if not ended:
            self._prepare(context)
            return []
        try:
            # Each replacement is a restart, of which there must be one left for all of them.
            replaceable = [
                self._may_replace(context.envs[local], code, before=before)
                for before, (local, code) in enumerate(ended.items())
            ]
        except RuntimeError:
            # The store has gone with node 0.
            return []
        if all(replaceable):
            return list(ended)
        self._settle(context)
        return []

    def replace(self, context: Any, local: int) -> int:
        """Start another process in the place of a worker; returns the number of the replacement in this round.

        Raises:
            RuntimeError: the store has gone.
        """
        handler, error_file = context.subprocess_handlers[local], context.error_files[local]
        ended = handler.proc
        # What it has started, such as data loaders.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.pid, signal.SIGKILL)
        for file in (error_file, fault_file(error_file)):
            with contextlib.suppress(OSError):
                os.remove(file)  # noqa: PTH107 -- as torch names it
        store = self._of(context.envs[local])
        store.add(GENERATION, 1)
        self.now = _replaced(store)
        environment = {**os.environ, **context.envs[local]}
        outputs = (handler._stdout, handler._stderr)
        command = self._commands.setdefault(local, ended.args)
        successor = self._spares.take(worker_arguments(command), environment, outputs)
        if successor is None:
            stdout, stderr = outputs
            with blocked_stops():
                successor = subprocess.Popen(
                    command, env=environment, stdout=stdout, stderr=stderr, start_new_session=True
                )
        handler.proc = successor
        for worker in self._agent._worker_group.workers:
            if worker.local_rank == local:
                worker.id = successor.pid
        return self.now

    def substitute(self, context: Any, ranks: Mapping[int, int], membership: int) -> str | None:
        """On node 0: let the ranks go on without the processes of some of them; returns why they cannot, else None.

        Args:
            context: of the workers of this node.
            ranks: that were lost, each with the generation of the membership that has brought its new pod.
            membership: the generation in which they go on.
        """
        if not self._offered:
            return "the processes of other nodes are not replaced in this job"
        environment = context.envs[0]
        try:
            store = self._of(environment)
            if store.add(ABANDONED, 0):
                return "the ranks have not met again"
            if not _all_ready(store, int(environment["WORLD_SIZE"])):
                return "not all ranks can go on with the process of another one"
            # A process of the lost pod that is still alive, or is again, learns of it before it can meet the others.
            for rank, member in ranks.items():
                store.set(holder_key(rank), str(member))
            store.set(MEMBERSHIP, str(membership))
            # Not a restart of processes in pods that stay.
            store.add(SUBSTITUTED, 1)
            store.add(GENERATION, 1)
        except RuntimeError as error:
            return f"the store of the ranks cannot be reached ({error})"
        return None

    def membership(self, context: Any) -> int | None:
        """The generation of the membership since a node was last lost; None if none was, or the store has gone."""
        if not self._offered or context is None:
            return None
        with contextlib.suppress(RuntimeError):
            store = self._of(context.envs[0])
            return int(store.get(MEMBERSHIP)) if store.check([MEMBERSHIP]) else None
        return None

    def waits(self, context: Any) -> bool:
        """Whether the ranks wait for some that have not come since processes were last replaced."""
        if not self._offered or context is None:
            return False
        with contextlib.suppress(RuntimeError):
            store, environment = self._of(context.envs[0]), context.envs[0]
            generation = int(store.add(GENERATION, 0))
            return generation > 0 and int(store.add(met_key(generation), 0)) < int(environment["WORLD_SIZE"])
        return False

    def end_restarts(self) -> None:
        """Torch's agent starts no workers again: those of other nodes would wait for one that is gone."""
        self.final = True
        if self._agent is None:
            # One that takes a place may hear of another one before it has workers; it is called again when they start.
            return
        self._agent._remaining_restarts = 0
        # An agent of the lost pod may still run, and ask to be let in.
        self._agent._worker_group.spec.rdzv_handler.num_nodes_waiting = lambda: 0

    def begin_after(self, restarts: int) -> None:
        """Count as the agents of the other nodes do, which have started their workers again so many times."""
        self._agent._remaining_restarts = self._agent._worker_group.spec.max_restarts - restarts

    def settle(self, context: Any) -> None:
        """Let torch's agent count what was replaced on all nodes as restarts, before it decides on one."""
        if self._offered and context is not None:
            with contextlib.suppress(RuntimeError):
                self._settle(context)

    def _may_replace(self, environment: Mapping[str, str], code: int, *, before: int) -> bool:
        if code >= 0:
            return False
        store, rank = self._of(environment), int(environment["RANK"])
        if store.check([holder_key(rank)]) and store.get(holder_key(rank)).decode() != os.environ.get(_MEMBER, "0"):
            return False
        restarts = int(environment["TORCHELASTIC_RESTART_COUNT"]) + _replaced(store)
        return may_replace(
            code,
            ready=_all_ready(store, int(environment["WORLD_SIZE"])),
            abandoned=store.add(ABANDONED, 0) > 0,
            restarts=restarts + before,
            most=int(environment["TORCHELASTIC_MAX_RESTARTS"]),
        )

    def _settle(self, context: Any) -> None:
        environment = context.envs[0]
        try:
            store = self._of(environment)
            # The restart that follows is for the loss that the ranks could not make up for.
            given_up = min(store.add(ABANDONED, 0), 1)
            self.now = _replaced(store)
        except RuntimeError:
            return
        if self.final:
            return
        count, most = int(environment["TORCHELASTIC_RESTART_COUNT"]), int(environment["TORCHELASTIC_MAX_RESTARTS"])
        self._agent._remaining_restarts = max(0, most - count - max(0, self.now - given_up))

    def _prepare(self, context: Any) -> None:
        """Start spare processes once the workers no longer need the processors to start themselves."""
        self._looks += 1
        if not self._spares.wanted or self._looks % _LOOKS:
            return
        with contextlib.suppress(RuntimeError):
            if _all_there(self._of(context.envs[0]), int(context.envs[0]["WORLD_SIZE"])):
                self._spares.start({**os.environ, **context.envs[0]})

    def _of(self, environment: Mapping[str, str]) -> Any:
        if self._store is None:
            self._store = store_of(environment)
        return self._store


def _replaced(store: Any) -> int:
    """Processes that were replaced in pods that stay."""
    generation = store.add(GENERATION, 0)
    return max(0, int(generation - store.add(SUBSTITUTED, 0)))


def _all_there(store: Any, world_size: int) -> bool:
    """Whether all ranks are ready, and none of them is still loading what it needs to meet the others."""
    generation = store.add(GENERATION, 0)
    return _all_ready(store, world_size) and (generation == 0 or store.add(met_key(generation), 0) >= world_size)


def _all_ready(store: Any, world_size: int) -> bool:
    keys = [ready_key(rank) for rank in range(world_size)]
    return bool(store.check(keys)) and all(value == READY.encode() for value in store.multi_get(keys))
