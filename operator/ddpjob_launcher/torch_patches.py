"""What is changed in torch's elastic agent, and what is read from its inside: all that depends on torch's version."""

# ruff: noqa: PLC0415 -- torch is the image's, and what it costs to import is the agent's alone
# ruff: noqa: ANN401, SLF001 -- torch's objects, of whatever version the image has

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from .errors import CannotStart
from .signals import AGREED_STOP
from .torch_import import uncollected

if TYPE_CHECKING:
    from collections.abc import Callable

# Key of the store that counts the nodes which have left.
LEFT = "ddpjob/left"


def import_torch(*, local: bool) -> tuple[Any, Any]:
    """Torch and its torchrun.

    Args:
        local: whether this runs outside a pod.

    Raises:
        CannotStart: there is none.
    """
    try:
        with uncollected():
            import torch
            from torch.distributed import run as torchrun
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        if local:
            advice = f"torch is not installed here: {sys.executable} -m pip install torch"
        else:
            advice = f"this image has no torch for {sys.executable}: check spec.trainer.image"
        raise CannotStart(advice) from error
    return torch, torchrun


def patch_workers(
    on_start: Callable[[Any, Callable[[Any], None]], None],
    on_close: Callable[[Any], float],
    on_success: Callable[[], None],
    on_look: Callable[[Any], None],
) -> None:
    """Call these when workers start, are to end (it returns how many seconds they have), have succeeded, and are looked
    at, which is done ten times a second.
    """
    from torch.distributed.elastic.multiprocessing import PContext

    start, close, wait = PContext.start, PContext.close, PContext.wait

    def started(context: Any) -> None:
        on_start(context, start)

    def closed(context: Any, death_sig: Any = None, timeout: float = 0) -> None:  # noqa: ARG001
        close(context, death_sig, on_close(context))

    def waited(context: Any, *args: Any, **kwargs: Any) -> Any:
        on_look(context)
        result = wait(context, *args, **kwargs)
        if result is not None and not result.is_failed():
            on_success()
        return result

    PContext.start, PContext.close, PContext.wait = started, closed, waited


def patch_processes(take: Callable[[Any, Any, Any], Any]) -> None:
    """Let workers be processes that this finds, where it finds one.

    Args:
        take: called with the handler, the command and the environment of a worker that is about to start.
    """
    from torch.distributed.elastic.multiprocessing import api

    handlers = getattr(api, "SubprocessHandler", None)
    start = getattr(handlers, "_popen", None)
    if handlers is None or start is None:
        return

    def started(handler: Any, args: Any, env: Any) -> Any:
        return take(handler, args, env) or start(handler, args, env)

    handlers._popen = started


def patch_restarts(on_restart: Callable[..., None], on_meeting: Callable[[Any], None]) -> None:
    """Let restarts in place take one from every node's budget, and start with an empty store.

    Args:
        on_restart: called when all workers are about to restart.
        on_meeting: called with torch's agent before it meets the others.
    """
    from torch.distributed.elastic.agent.server.api import SimpleElasticAgent as Agents

    meet, restart = Agents._rendezvous, Agents._restart_workers

    def restarted(agent: Any, group: Any) -> None:
        elsewhere = group.state.name == "HEALTHY"
        on_restart(elsewhere=elsewhere)
        # Where only the node whose workers failed counts it, the nodes disagree on how many restarts are left.
        if elsewhere and _fixed_size(group.spec.rdzv_handler):
            agent._remaining_restarts = max(0, agent._remaining_restarts - 1)
        restart(agent, group)

    def met(agent: Any, group: Any) -> None:
        handler = group.spec.rdzv_handler
        # torch gives the new workers the store of the old ones, who have left their addresses in it.
        if getattr(handler, "_bootstrap_store_info", None):
            handler._bootstrap_store_info = None
        _look_more_often(handler)
        on_meeting(agent)
        meet(agent, group)

    Agents._rendezvous, Agents._restart_workers = met, restarted


def patch_success(on_leaving: Callable[[Any], None]) -> None:
    """Let no node wait for workers that have finished, and the store's host leave last."""
    from torch.distributed.elastic.agent.server.api import SimpleElasticAgent as Agents

    barrier = getattr(Agents, "_exit_barrier", None)
    if barrier is None:
        return

    def left_together(agent: Any) -> None:
        group = agent.get_worker_group()
        # A node that wanted to start its workers again would wait for ours forever.
        with contextlib.suppress(Exception):
            group.spec.rdzv_handler.set_closed()
        barrier(agent)
        # Nothing else hands the store out.
        on_leaving(agent._store)
        if group.group_rank == 0:
            _wait_for_others(agent._store, group.group_world_size)

    Agents._exit_barrier = left_together


def restarts_left(context: Any, replaced: int) -> bool:
    """Whether torchrun will start these workers again, so many of which were replaced since they all started."""
    environment = context.envs[0]
    return int(environment["TORCHELASTIC_RESTART_COUNT"]) + replaced < int(environment["TORCHELASTIC_MAX_RESTARTS"])


def agreed_to_stop(context: Any) -> bool:
    """Whether these workers have agreed to stop and saved; those that torchrun has ended do not count."""
    codes = _exit_codes(context).values()
    ours = (-signal.SIGTERM, -signal.SIGKILL)
    return AGREED_STOP in codes and all(code in (0, AGREED_STOP, *ours) for code in codes)


def round_prefix(handler: Any) -> str:
    """The prefix of the keys that torch's agents use in the current round of workers."""
    return f"torch.rendezvous.{handler._settings.run_id}.{handler._state_holder.state.round}"


def add_failures(context: Any) -> None:
    """Let torch know of workers that have failed since it looked."""
    for local, code in _exit_codes(context).items():
        if code and local not in context._failures:
            context._failures[local] = failure_of(context, local)


def failure_of(context: Any, local: int) -> Any:
    """What torch has of a worker that has failed."""
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    process = context.subprocess_handlers[local].proc
    return ProcessFailure(local, process.pid, process.returncode, context.error_files[local])


def _exit_codes(context: Any) -> dict[int, int | None]:
    return {local: handler.proc.poll() for local, handler in context.subprocess_handlers.items()}


def _wait_for_others(store: Any, nodes: int) -> None:
    """On the store's host: let the others leave first, else each ends its success with errors about the lost store."""
    deadline = time.monotonic() + 10
    with contextlib.suppress(RuntimeError):
        while store.add(LEFT, 0) < nodes - 1 and time.monotonic() < deadline:
            time.sleep(0.05)


def _fixed_size(handler: Any) -> bool:
    settings = getattr(handler, "settings", None)
    return settings is None or settings.min_nodes == settings.max_nodes


def _look_more_often(handler: Any) -> None:
    """Let a small job's agents check the rendezvous more than once per second: a restart waits for it three times."""
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    holder, delay = getattr(handler, "_state_holder", None), getattr(dynamic_rendezvous, "_delay", None)
    if holder and delay and not hasattr(delay, "ddpjob"):
        pause = min(1.0, max(0.2, handler.settings.max_nodes / 100))

        def shorter(seconds: Any) -> None:
            delay(pause if seconds == 1 else seconds)

        shorter.ddpjob = True  # type: ignore[attr-defined]
        dynamic_rendezvous._delay, holder._cache_duration = shorter, pause
