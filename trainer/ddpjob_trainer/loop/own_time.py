"""How long a rank takes for its own part of a step, by its own clock: what it does without waiting for another rank.

With DistributedDataParallel the slowest rank never waits, and all others wait for it at the end of their backward
passes. Before DDP waits there, autograd calls what was queued at the beginning of the backward pass: that moment is
when the rank has computed all its own gradients. See docs/adr/0019-the-slowest-rank.md.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from itertools import pairwise
from typing import Final, Protocol
from weakref import WeakSet

import torch
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from ddpjob_trainer.observability.slowest import OwnSeconds

_BETWEEN: Final = 0.05
"""Seconds between two measured steps, on average and at least, so that measuring costs next to nothing."""
_MOST_BETWEEN: Final = 100
"""Steps between two measured ones, on average and at most."""
_MOST_PENDING: Final = 64
"""Measured steps that a GPU may not have finished yet; further ones push out the oldest."""


class Doing(IntEnum):
    """What a rank does in a step."""

    WAITING = 0
    """For other ranks, or something else that says nothing about its own speed."""
    DATA = 1
    COMPUTING = 2


class Timer(Protocol):
    """Adds up what a rank does in the steps that are measured."""

    def begin(self) -> None:
        """A step begins, with the wait for its data."""

    def mark(self, doing: Doing) -> None:
        """From here on, the rank does this."""

    def end(self) -> None:
        """The step ends."""

    def taken(self) -> tuple[int, float, float]:
        """Measured steps, and their seconds of data and computing, since the last call."""


class HostTimer:
    """For a rank that computes where it runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Args:
        clock: seconds.
        """
        self._clock = clock
        self._doing, self._since = Doing.WAITING, 0.0
        self._step, self._sums, self._steps = [0.0] * len(Doing), [0.0] * len(Doing), 0

    def begin(self) -> None:
        """A step begins, with the wait for its data."""
        self._step = [0.0] * len(Doing)
        self._doing, self._since = Doing.DATA, self._clock()

    def mark(self, doing: Doing) -> None:
        """From here on, the rank does this."""
        now = self._clock()
        self._step[self._doing] += now - self._since
        self._doing, self._since = doing, now

    def end(self) -> None:
        """The step ends."""
        self.mark(Doing.WAITING)
        self._sums = [total + each for total, each in zip(self._sums, self._step, strict=True)]
        self._steps += 1

    def taken(self) -> tuple[int, float, float]:
        """Measured steps, and their seconds of data and computing, since the last call."""
        found = self._steps, self._sums[Doing.DATA], self._sums[Doing.COMPUTING]
        self._sums, self._steps = [0.0] * len(Doing), 0
        return found


class Moment(Protocol):
    """A moment in the work of a device; torch.cuda.Event is one."""

    def record(self) -> None:
        """It is when the device has done what it was given so far."""

    def query(self) -> bool:
        """Whether it has come, without waiting."""

    def elapsed_time(self, end_event: "Moment") -> float:
        """Milliseconds until a later one."""


class DeviceTimer:
    """For a rank that computes on a GPU, whose own clock it reads: the host only queues work, and never waits here.

    What the host does while the device still has work is not noticed. Once the device waits for the host, be it for
    data or for the next kernel, that is part of what the host does.
    """

    def __init__(self, moment: Callable[[], Moment]) -> None:
        """Args:
        moment: makes a new one.
        """
        self._moment = moment
        self._unused: list[Moment] = []
        self._step: list[tuple[Doing, Moment]] = []
        self._pending: deque[list[tuple[Doing, Moment]]] = deque()

    def begin(self) -> None:
        """A step begins, with the wait for its data."""
        self._free(self._step)
        self._step = []
        self.mark(Doing.DATA)

    def mark(self, doing: Doing) -> None:
        """From here on, the rank does this."""
        moment = self._unused.pop() if self._unused else self._moment()
        moment.record()
        self._step.append((doing, moment))

    def end(self) -> None:
        """The step ends."""
        self.mark(Doing.WAITING)
        self._pending.append(self._step)
        self._step = []
        if len(self._pending) > _MOST_PENDING:
            self._free(self._pending.popleft())

    def taken(self) -> tuple[int, float, float]:
        """Measured steps that the device has finished, and their seconds of data and computing, since the last call."""
        sums, steps = [0.0] * len(Doing), 0
        while self._pending and self._pending[0][-1][1].query():
            step = self._pending.popleft()
            for (doing, begun), (_, ended) in pairwise(step):
                sums[doing] += begun.elapsed_time(ended) / 1000
            steps += 1
            self._free(step)
        return steps, sums[Doing.DATA], sums[Doing.COMPUTING]

    def _free(self, step: list[tuple[Doing, Moment]]) -> None:
        self._unused += [moment for _, moment in step]


class OwnTime:
    """Measures some of the steps, chosen at random, so that nothing periodic is always or never among them."""

    def __init__(self, timer: Timer, *, seed: int) -> None:
        """Args:
        timer: of the device on which this rank computes.
        seed: of the choice of steps.
        """
        self._timer = timer
        # Not the program's random numbers, which a resume restores.
        self._random = random.Random(seed)  # noqa: S311 no secret
        self._measures = False
        self._between, self._left = 1, 1
        self._steps, self._elapsed, self._checkpoint = 0, 0.0, 0.0
        self._attached = WeakSet[DistributedDataParallel]()
        self._hooks = list[RemovableHandle]()

    @classmethod
    def on(cls, device: torch.device, *, rank: int, clock: Callable[[], float] = time.perf_counter) -> "OwnTime":
        """For a rank that computes on this device."""
        if device.type != "cuda":
            return cls(HostTimer(clock), seed=rank)
        return cls(DeviceTimer(lambda: torch.cuda.Event(enable_timing=True)), seed=rank)

    def begin_step(self) -> None:
        """A step begins, with the wait for its data."""
        self._measures = self._left <= 1
        if self._measures:
            self._timer.begin()

    def await_data(self) -> None:
        """The rank waits for further data."""
        if self._measures:
            self._timer.mark(Doing.DATA)

    def compute(self) -> None:
        """The rank computes."""
        if self._measures:
            self._timer.mark(Doing.COMPUTING)

    def wait(self) -> None:
        """The rank waits for others."""
        if self._measures:
            self._timer.mark(Doing.WAITING)

    def before_backward(self, loss: torch.Tensor) -> None:
        """The gradients of this loss are computed next, and exchanged."""
        if self._measures and loss.requires_grad:
            loss.register_hook(self._backward_begun)

    def end_step(self, seconds: float) -> None:
        """A step is done.

        Args:
            seconds: since it began.
        """
        self._steps += 1
        self._elapsed += seconds
        if self._measures:
            self._timer.end()
            self._measures = False
            self._left = self._random.randrange(1, 2 * self._between)
        else:
            self._left -= 1

    def saved(self, seconds: float, *, own: bool) -> None:
        """A checkpoint has been saved.

        Args:
            seconds: how long the training paused for it.
            own: whether this rank has written it; others have waited for that.
        """
        self._elapsed += seconds
        if own:
            self._checkpoint += seconds

    def taken(self) -> OwnSeconds:
        """What was measured since the last call."""
        measured, data, computing = self._timer.taken()
        found = OwnSeconds(self._steps, measured, data, computing, self._checkpoint, self._elapsed)
        if self._elapsed > 0:
            self._between = max(1, min(round(_BETWEEN * self._steps / self._elapsed), _MOST_BETWEEN))
        self._steps, self._elapsed, self._checkpoint = 0, 0.0, 0.0
        return found

    def attach(self, model: DistributedDataParallel) -> None:
        """Count the wait for rank 0's buffers, before each forward pass, as what it is."""
        if model in self._attached:
            return
        self._attached.add(model)
        if model.broadcast_buffers and any(True for _ in model.module.buffers()):
            self._hooks += [
                model.register_forward_pre_hook(lambda *_: self.wait()),
                model.module.register_forward_pre_hook(lambda *_: self.compute()),
            ]

    def detach(self) -> None:
        """Measure nothing any longer: the models go on in another group."""
        self._measures = False
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _backward_begun(self, _gradient: torch.Tensor) -> None:
        # Before what DDP queues: it does so when its last bucket is full.
        Variable._execution_engine.queue_callback(self.wait)  # noqa: SLF001 torch's own FSDP does the same
