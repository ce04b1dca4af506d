"""The launcher torchrun, which is torch.distributed.launch too: torch.distributed.run in the agent's own process."""

# ruff: noqa: PLC0415 -- torch is the image's, and what it costs to import is the agent's alone
# ruff: noqa: ANN401, SLF001 -- torch's objects, of whatever version the image has

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from .agent import leave, still_running
from .cgroup import oom_kills
from .commands import FILE, command
from .dns import absolute_name
from .elastic import ElasticAgent
from .errors import CannotStart, LaunchError
from .failures import own_failure, worker_failure
from .first_workers import FirstWorkers
from .log import say
from .membership import LOOK_EVERY
from .places import Place, Places
from .program import prepare_environment
from .rendezvous import await_node_0, endpoint
from .replacing import Replacing
from .signals import AGREED_STOP
from .substitute import BACKEND, use_place
from .torch_import import has_libuv, libuv_off, uncollected
from .torch_patches import (
    LEFT,
    add_failures,
    agreed_to_stop,
    failure_of,
    import_torch,
    patch_processes,
    patch_restarts,
    patch_success,
    patch_workers,
    restarts_left,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .membership import Membership
    from .report import Failure
    from .settings import Settings

# Seconds that the other workers of a node have before a restart in place: they cannot go on, and all nodes wait.
_RESTART_PATIENCE = 1.0
# Seconds from the record of a worker's error to the end of its process, which still takes down its threads.
_END_PATIENCE = 5.0


class TorchrunAgent(ElasticAgent):
    """Runs torchrun, hears of its workers' start and end, and bounds their end by the pod's grace period."""

    def __init__(self, settings: Settings, folder: str) -> None:
        """Make an agent that keeps its files in `folder`."""
        super().__init__(settings, folder)
        self._replacing = Replacing(settings.spares)
        self._first = FirstWorkers(settings, folder, self._replacing.remember)

    _place: Place | None = None
    _places: Places | None = None
    _prefix = ""
    # Host and id of the rendezvous.
    _met_at = ("", "")
    _restarting = False
    _last_round: tuple[int, list[Failure]] | None = None
    _store: Any = None

    def _while_waiting(self) -> None:
        if self._settings.spare:
            self._first.prepare()

    def _launch(self) -> None:
        environment = os.environ
        torch, torchrun = import_torch(local=self._settings.local)
        self._join()
        settings = self._settings
        patch_workers(self.on_start, self.on_close, self.on_success, self.on_look)
        if settings.spare:
            patch_processes(self._first.take)
        patch_restarts(self.on_restart, self.on_meeting)
        patch_success(self.on_leaving)
        libuv = has_libuv()
        if not libuv:
            libuv_off()
        worker = command("worker", "yes" if libuv else "no", settings.program_kind, settings.program)
        if settings.launcher == "torch.distributed.launch":
            # As it does itself, which is torchrun otherwise; torch puts the number in.
            worker.append("--local-rank=${local_rank}")
        # What newer torch does by itself; older versions check their workers every 5 s.
        environment.setdefault("PET_MONITOR_INTERVAL", "0.1")
        try:
            # torchrun itself puts the interpreter before the archive, which is to it a script like any other.
            options = torchrun.parse_args([*worker[worker.index(FILE) :], *sys.argv[1:]])
        except SystemExit as error:
            raise CannotStart("torchrun rejects its PET_* variables: see the lines above") from error
        # A program that itself calls torchrun would else join this rendezvous.
        for name in [name for name in environment if name.startswith("PET_")]:
            del environment[name]
        options.log_dir = options.log_dir or self._folder
        prepare_environment(settings, int(options.nproc_per_node), self._folder)
        if options.rdzv_backend != "static":
            workers = settings.nodes * int(options.nproc_per_node)
            restarts, back = int(options.max_restarts), settings.rejoin > 0
            self._replacing.offer(environment, workers=workers, restarts=restarts, nodes_return=back)
        say(
            f"{settings.this_node()}, processes {options.nproc_per_node}, "
            f"rendezvous {options.rdzv_backend}, torch {torch.__version__}"
        )
        try:
            self._run(torchrun, options)
        finally:
            self._replacing.end()
            self._first.close()
        if self._store is not None:
            with contextlib.suppress(RuntimeError):
                self._store.add(LEFT, 1)

    def _run(self, torchrun: Any, options: Any) -> None:
        """Run torchrun, and in an elastic job again until its nodes have met."""
        begun, host = time.monotonic(), self._addresses(options)
        self._met_at = ("127.0.0.1" if self._settings.node == 0 else host), options.rdzv_id
        while True:
            self._meet(options, host)
            if self._membership is not None and self._membership.takes_a_place(self._settings.node):
                self._take_place(options, host)
            try:
                torchrun.run(options)
            except Exception as error:
                if not self._meets_again(error, begun):
                    raise
            else:
                return

    def _take_place(self, options: Any, host: str) -> None:
        """Wait until node 0 has told the ranks of the others to go on with those of this node."""
        settings = self._settings
        places = Places(host, settings.rendezvous_port, options.rdzv_id)
        say(f"{settings.this_node()}: ready to take the place of a pod that was lost")
        # The pod that was lost may have to save first.
        patience = settings.rejoin + settings.grace_period
        deadline = time.monotonic() + patience
        while (place := places.given(settings.node, settings.member)) is None:
            self._park_if_stopping()
            if time.monotonic() >= deadline:
                raise LaunchError(f"node 0 has not said within {patience:g} s that the ranks go on")
            time.sleep(LOOK_EVERY / 2)
        self._place, options.rdzv_backend = place, BACKEND
        use_place(place, places.store, node=settings.node, nodes=settings.nodes)

    def _goes_on(self, known: Membership, found: Membership) -> bool:
        host, run_id = self._met_at
        if not run_id:
            # Asked again: this node does not know yet where the others are.
            return False
        try:
            if self._places is None:
                self._places = Places(host, self._settings.rendezvous_port, run_id)
            if self._settings.node == 0:
                return self._decide(known, found, self._places)
            if self._places.gone_on() < found.generation:
                return False
        except RuntimeError:
            # It has gone with node 0, which torch's agent notices as well.
            return False
        self._go_on(found)
        return True

    def _decide(self, known: Membership, found: Membership, places: Places) -> bool:
        """On node 0: whether the ranks go on with those of the pods that are new; they do so, or this node ends."""
        lost = [(node, member) for node, member in found.members if member != known.member(node)]
        names = ", ".join(f"node {node}" for node, _ in lost)
        with self._lock:
            if self._stopping:
                return False
            if self._code is not None:
                # The workers of this node are done, and its report is written: it waits for the lost node alone.
                leave(self._code)
            context = self._context
            if context is None or self._restarting:
                why: str | None = "the workers were not running"
            else:
                count = int(context.envs[0]["LOCAL_WORLD_SIZE"])
                ranks = {node * count + local: member for node, member in lost for local in range(count)}
                why = self._replacing.substitute(context, ranks, found.generation)
            if why is None:
                self._go_on(found)
                place = Place(self._prefix, int(context.envs[0]["TORCHELASTIC_RESTART_COUNT"]))
                for node, member in lost:
                    places.give(node, member, place)
                places.go_on(found.generation)
                return True
        self._give_up(found, f"the ranks cannot go on without {names}: {why}")
        return False

    def _go_on(self, found: Membership) -> None:
        with self._lock:
            self._replacing.end_restarts()
        new = ", ".join(str(node) for node, member in found.members if member > found.formed)
        say(f"the ranks of this node go on in their processes; nodes in another pod: {new}")

    def _addresses(self, options: Any) -> str:
        """Let no node ask for a name that it does not need; return that of node 0."""
        settings = self._settings
        first, port = settings.node == 0, settings.rendezvous_port
        host = absolute_name(settings.rendezvous_host, settings.namespace)
        if options.nnodes in ("1", "1:1"):
            options.local_addr = options.master_addr = host = "127.0.0.1"
        elif options.local_addr:
            options.local_addr = absolute_name(options.local_addr, settings.namespace)
        if options.rdzv_backend == "static":
            options.master_addr = host
        else:
            # The store is in this very process: no name is needed to reach it, and ours may not exist yet.
            options.rdzv_endpoint = endpoint("127.0.0.1" if first else host, port)
        return host

    def _meet(self, options: Any, host: str) -> None:
        """Wait for node 0."""
        settings = self._settings
        first = settings.node == 0
        if not first or options.rdzv_backend == "static":
            await_node_0(settings, host, settings.rendezvous_port, connect=not first)

    def _report_error(self, error: BaseException) -> None:
        if type(error).__name__ == "ChildFailedError":
            self._end(*self._ends(error.failures))  # type: ignore[attr-defined]
        elif self._last_round and not self._agreed():
            # Workers that failed before the agent did, or could not start again, because another node has ended.
            code, before = self._last_round
            self._end(code, [*before, own_failure(error, self._settings)])
        else:
            super()._report_error(error)

    def _agreed(self) -> bool:
        return self._context is not None and agreed_to_stop(self._context)

    # What torch_patches calls.

    def on_meeting(self, agent: Any) -> None:
        """The workers of all nodes are about to start, or those of this one in the place of others."""
        self._replacing.use_agent(agent)
        if self._place is not None:
            self._replacing.begin_after(self._place.restarts)

    def on_start(self, context: Any, start: Callable[[Any], None]) -> None:
        """A round of workers starts."""
        with self._lock:
            if not self._stopping:
                self._context, self._restarting = context, False
                self._replacing.begin_round()
                self._rounds += 1
                self._oom_kills = oom_kills()
                if self._place is not None:
                    self._replacing.end_restarts()
                else:
                    self._prefix = self._replacing.prefix()
                start(context)
                self._handle_signals()
        self._park_if_stopping()

    def on_close(self, context: Any) -> float:
        """A round of workers is to end; return how many seconds it has."""
        self._park_if_stopping()
        # torch reports a failure only when the other workers have ended as well.
        failures = getattr(context, "_failures", None)
        if failures and not self._restarting:
            self._failed(context)
        elif not self._restarting:
            # The agent itself has failed. A node that lost the connection to a rank of this one may have been faster,
            # and have taken the store with it: what ended that rank comes first. The others may be about to save.
            self._last_round = self._ended_already(context)
            self._wait_for_workers(context, signal.SIGTERM)
        return _RESTART_PATIENCE if self._restarting else self._patience

    def on_look(self, context: Any) -> None:
        """The workers are about to be looked at: replace those that were killed, where the others can go on."""
        with self._lock:
            killed = [] if self._stopping or self._restarting else self._replacing.killed(context)
            for local in killed:
                self._replace(context, local)

    def _replace(self, context: Any, local: int) -> None:
        environment, out_of_memory = context.envs[local], oom_kills() > self._oom_kills
        end = failure_of(context, local)
        failure = worker_failure(int(environment["RANK"]), end, end.error_file, out_of_memory=out_of_memory)
        self._oom_kills = oom_kills()
        self._replacing.replace(context, local)
        self._handle_signals()
        say(
            f"rank {failure.rank}: {failure.message}: another process takes its place while the other ranks go on, "
            f"process restart {self._restarts} of {environment['TORCHELASTIC_MAX_RESTARTS']}"
        )
        if failure.traceback:
            say(failure.traceback)

    def _generation(self) -> int | None:
        """That in which the ranks have met, who may have heard of it before this launcher."""
        known = super()._generation()
        met = self._replacing.membership(self._context) if self._settings.rejoin else None
        return known if known is None or met is None else max(known, met)

    @property
    def _restarts(self) -> int:
        return super()._restarts + self._replacing.earlier + self._replacing.now

    def on_success(self) -> None:
        """All workers of this node have succeeded."""
        self._end(0)

    def on_restart(self, *, elsewhere: bool) -> None:
        """All workers restart in place, because one of another node has failed where `elsewhere` says so."""
        if self._code:
            # torch does not know that each restart would end the same way.
            leave(self._code)
        if elsewhere:
            self._last_round = None
            say(f"workers on another node have exited: all workers restart, process restart {self._restarts + 1}")
        self._restarting = True
        if elsewhere:
            self._replacing.settle(self._context)

    def _waits_for_one_that_leaves(self, found: Membership) -> bool:
        known = self._membership
        lost = known is not None and any(known.takes_a_place(node) for node, _ in known.members if node >= found.nodes)
        return lost and self._replacing.waits(self._context)

    def _not_saved(self) -> list[str]:
        context = self._context
        if context is None:
            return []
        add_failures(context)
        failures = {
            int(context.envs[local]["RANK"]): failure
            for local, failure in context._failures.items()
            if failure.exitcode not in (AGREED_STOP, -signal.SIGTERM, -signal.SIGKILL)
        }
        return [f"rank {each.rank}: {each.message}" for each in self._ends(failures)[1]] if failures else []

    def on_leaving(self, store: Any) -> None:
        """All nodes have finished, and leave this store."""
        self._store = store

    def _ended_already(self, context: Any) -> tuple[int, list[Failure]] | None:
        """Workers that failed by themselves; those that have recorded an error get a moment to end with it."""
        pids = context.pids()
        recorded = [local for local, file in context.error_files.items() if os.path.isfile(file)]  # noqa: PTH113
        ending = [pids[local] for local in recorded if local in pids]
        still_running(ending, min(_END_PATIENCE, self._patience), self._is_alive)
        add_failures(context)
        failures = {int(context.envs[local]["RANK"]): failure for local, failure in context._failures.items()}
        return self._ends(failures) if failures else None

    def _failed(self, context: Any) -> None:
        """Judge the end of a round of workers, while those that have not failed still run."""
        agreed = any(failure.exitcode == AGREED_STOP for failure in context._failures.values())
        if agreed:
            # Ranks that were not asked themselves wait for those that were to come back in another pod.
            late = self._wait_for_workers(context, signal.SIGTERM if self._settings.rejoin else 0)
            if agreed_to_stop(context):
                self._end_agreed(late)
                leave(AGREED_STOP)
            add_failures(context)
        failures = context._failures.items()
        code, found = self._ends({int(context.envs[local]["RANK"]): failure for local, failure in failures})
        if agreed:
            self._end(code, found)
            leave(code)
        if not self._replacing.final and restarts_left(context, self._replacing.now) and not found[0].permanent:
            self._restarting, self._last_round = True, (code, found)
            cause, most = found[0], context.envs[0]["TORCHELASTIC_MAX_RESTARTS"]
            again = f"all workers restart in their running pods, process restart {self._restarts + 1} of {most}"
            say(f"rank {cause.rank}: {cause.message}: {again}")
        else:
            self._end(code, found)


def preload() -> None:
    """Load what an agent begins with."""
    with uncollected():
        from torch.distributed import run  # noqa: F401


AGENT = TorchrunAgent
