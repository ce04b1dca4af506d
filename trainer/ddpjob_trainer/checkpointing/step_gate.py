"""Delays an optimizer's next step until what it changes has been copied.

Parameters and an optimizer's tensors do not change between two of its steps: they can be copied for a checkpoint while
the next gradients are computed (Mohan et al., CheckFreq, USENIX FAST 2021).
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeGuard

import torch

from ddpjob_trainer.checkpointing.forms import View, is_plain, view_of

Place = View
"""Which elements of the host's memory a tensor shows."""

_WORTH_IT: Final = 1 << 16
"""Bytes of a tensor: smaller ones are copied faster than deferred."""


@dataclass
class Pause:
    """How long a training pauses for one save."""

    seconds: float = 0.0
    """Grows until the checkpoint is on disk."""


class StepGate:
    """Lets one optimizer's steps pass, except between `close` and `open`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Args:
        clock: seconds; only differences count.
        """
        self._clock = clock
        self._opened = threading.Event()
        self._opened.set()
        self._pause = Pause()
        self._optimizer: torch.optim.Optimizer | None = None
        self._remove_hook: Callable[[], None] = _nothing
        self._observed: list[tuple[torch.Tensor, int]] | None = None
        self._stable = frozenset[Place]()

    def watch(self, optimizer: object) -> None:
        """Observe what changes before the optimizer's next step; call it between two steps.

        An embedding with a `max_norm` changes its own parameter in every forward pass, some optimizers work during the
        backward pass, and a class that only wraps another optimizer calls no hooks.
        """
        if optimizer is self._optimizer or not _calls_hooks(optimizer):
            return
        self._remove_hook()
        self._remove_hook = optimizer.register_step_pre_hook(self._before_step).remove
        self._optimizer, self._stable = optimizer, frozenset()
        self._observed = [(each, each._version) for each in _tensors(optimizer)]  # noqa: SLF001 torch counts changes nowhere else

    def stable(self, optimizer: object) -> frozenset[Place]:
        """The places that change in a step of this optimizer, and were not observed to change at any other time.

        Only in the host's memory: a GPU's tensors are copied before its next step anyway. None are known before `watch`
        and a step.
        """
        if self._optimizer is None or optimizer is not self._optimizer or self._observed is not None:
            return frozenset()
        # Only what it has now: memory that it has released may be in use by others.
        return self._stable.intersection(map(place, _tensors(self._optimizer)))

    def close(self, pause: Pause) -> None:
        """Make the next step of the watched optimizer wait for `open`, and add that time to the pause."""
        self._pause = pause
        self._opened.clear()

    def open(self) -> None:
        """Let steps pass; may be called in any thread."""
        self._opened.set()

    def wait(self) -> None:
        """Wait until the gate is open."""
        self._opened.wait()

    def _before_step(self, *_: object) -> None:
        if self._observed is not None:
            observed, self._observed = self._observed, None
            self._stable = frozenset(place(each) for each, version in observed if each._version == version)  # noqa: SLF001
        if self._opened.is_set():
            return
        before = self._clock()
        self._opened.wait()
        self._pause.seconds += self._clock() - before


def place(tensor: torch.Tensor) -> Place:
    """The place of a tensor."""
    return view_of(tensor)


def _nothing() -> None:
    """Stands for a hook's removal while there is no hook."""


def _calls_hooks(optimizer: object) -> TypeGuard[torch.optim.Optimizer]:
    return isinstance(optimizer, torch.optim.Optimizer) and getattr(type(optimizer).step, "hooked", False)


def _tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    def tensors() -> Iterator[torch.Tensor]:
        for group in optimizer.param_groups:
            yield from group["params"]
        for state in optimizer.state.values():
            yield from (each for each in state.values() if isinstance(each, torch.Tensor))

    # Tensors made for inference do not count their changes.
    return [
        each
        for each in tensors()
        if is_plain(each) and each.device.type == "cpu" and each.nbytes >= _WORTH_IT and not each.is_inference()
    ]
