"""What a forward pass changes of the models, as it was before."""

from collections.abc import Iterable

import torch
from torch import nn


class Buffers:
    """The buffers of models, such as the running statistics of BatchNorm."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        """Args:
        models: whose buffers stay the same objects.
        """
        self._buffers = [each for model in models for each in model.buffers()]
        self._copies = [each.detach().clone() for each in self._buffers]
        self._step: int | None = None

    def remember(self, step: int) -> None:
        """Copy them as they are after this step, and before the next one."""
        self._step = step
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)

    def restore(self, step: int) -> None:
        """Undo what was changed since this step, if they were copied after it."""
        if self._buffers and step == self._step:
            torch._foreach_copy_(self._buffers, self._copies)
