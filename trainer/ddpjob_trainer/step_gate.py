"""Holds an optimizer's next step back until what it changes is copied.

Parameters and an optimizer's tensors stay as they are from one of its steps to the next one: a copy for a checkpoint
may take place while the next gradients are computed (Mohan et al., CheckFreq, USENIX FAST 2021).
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import torch

Place = tuple[int, int]
"""A tensor's address in the host's memory, and its bytes."""


@dataclass
class Pause:
    """How long a training stands still for one save."""

    seconds: float = 0.0
    """Grows until the checkpoint is on disk."""


class StepGate:
    """Lets one optimizer's steps through, but for the time between `close` and `open`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Args:
        clock: seconds, of which only differences count.
        """
        self._clock = clock
        self._opened = threading.Event()
        self._opened.set()
        self._pause = Pause()
        self._optimizer: torch.optim.Optimizer | None = None
        self._remove_hook: Callable[[], None] = _nothing

    def close(self, optimizer: torch.optim.Optimizer, pause: Pause) -> None:
        """Let the next step of this optimizer wait for `open`, and add to the pause how long it waits."""
        if optimizer is not self._optimizer:
            self._remove_hook()
            self._optimizer, self._remove_hook = optimizer, optimizer.register_step_pre_hook(self._wait).remove
        self._pause = pause
        self._opened.clear()

    def open(self) -> None:
        """Let steps through; another thread than the one that trains may do so."""
        self._opened.set()

    def _wait(self, *_: object) -> None:
        if self._opened.is_set():
            return
        before = self._clock()
        self._opened.wait()
        self._pause.seconds += self._clock() - before


def _nothing() -> None:
    """Before there is a hook."""


def calls_hooks(optimizer: object) -> TypeGuard[torch.optim.Optimizer]:
    """Whether a step of it can be held back: a class that only wraps another optimizer does not call hooks."""
    return isinstance(optimizer, torch.optim.Optimizer) and getattr(type(optimizer).step, "hooked", False)


def changed_by_steps_alone(optimizer: torch.optim.Optimizer) -> frozenset[Place]:
    """The places in the host's memory that change when the optimizer makes a step, and at no other time.

    What is on a GPU is not among them: a copy from there delays the training's thread by nothing anyway.
    """

    def tensors() -> Iterator[torch.Tensor]:
        for group in optimizer.param_groups:
            yield from group["params"]
        for state in optimizer.state.values():
            yield from (each for each in state.values() if isinstance(each, torch.Tensor))

    # Tensors made for inference do not count their changes.
    return frozenset(place(each) for each in tensors() if each.device.type == "cpu" and not each.is_inference())


def place(tensor: torch.Tensor) -> Place:
    """Where a tensor is."""
    return tensor.data_ptr(), tensor.nbytes
