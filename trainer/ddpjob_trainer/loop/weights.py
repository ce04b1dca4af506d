"""Losses that are a sum with a weight, such as that of all tokens: a step divides by the weight of all its batches."""

import math
from typing import Any, Final

import torch

from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.exchange import Exchange, Total

_LEAST: Final = 2.0**-60
_MOST: Final = 2.0**60
_KINDS: Final = ("a mean, which is one tensor", "a tuple of a sum and its weight")


class Weights:
    """Turns the losses of batches into parts of the loss of a step: shares of a mean, or sums with weights.

    Until the weight of a step is known, sums are divided by a unit that is about as large, so that gradients are in
    range for float16. It is a power of two: it changes no digit.
    """

    def __init__(self, exchange: Exchange, world_size: int) -> None:
        """Args:
        exchange: between the ranks.
        world_size: number of ranks.
        """
        self._exchange = exchange
        self._world_size = world_size
        self._weighted: bool | None = None
        self._unit: float | None = None
        self._own: torch.Tensor | None = None
        self._total: Total | None = None
        self._scale: torch.Tensor | None = None

    def part(self, loss: object, *, share: float, last: bool) -> torch.Tensor:
        """The part of a batch in the loss of the step.

        A collective in the first step, and with a weight for the last batch of each step.

        Args:
            loss: a mean, or a sum with its weight.
            share: of a mean in that of the step; 0 for a batch that repeats a sample, which counts nothing.
            last: whether it is the last batch of the step.

        Raises:
            MisuseError: it is neither, or the ranks or the batches have different kinds.
        """
        value, weight = _read(loss)
        counts = share > 0
        own = None if weight is None else weight.to(value.device) * counts
        self._agree(own)
        if own is None or self._unit is None:
            return value if share == 1 else value * share
        self._own = own if self._own is None else self._own + own
        if last:
            # It is on its way during the backward pass.
            self._total, self._own = self._exchange.begin_sum(self._own), None
        return value / self._unit if counts else value * 0

    def scale(self, *, read: bool) -> torch.Tensor | None:
        """What turns the ranks' mean of a step into the mean over its weights; None for shares of a mean.

        0 if all weights are 0: then nothing in the step counts.

        Args:
            read: whether to wait for the device, if it has the weights, to check them.

        Raises:
            MisuseError: a weight is negative or not finite; on all ranks.
        """
        if self._total is None or self._unit is None:
            return None
        if self._scale is None:
            total = self._total.result()
            if (read or total.device.type == "cpu") and not torch.isfinite(total):
                raise MisuseError(
                    "the weight of a batch is negative, infinite or NaN on one of the ranks: return the sum of the "
                    "losses and the sum of their weights, such as the number of tokens that count"
                )
            self._scale = torch.where(total == 0, 0.0, self._world_size * self._unit / total)
        return self._scale

    def forget(self) -> None:
        """Another step begins, or the same one again."""
        self._own = self._total = self._scale = None

    def state_dict(self) -> dict[str, Any]:
        """The unit."""
        return {"unit": self._unit}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with a saved unit, to which the scale of the loss in float16 has adapted."""
        self._unit = state_dict["unit"]

    def _agree(self, weight: torch.Tensor | None) -> None:
        """Check that all batches of all ranks have losses of one kind, and choose the unit in the first step."""
        weighted = weight is not None
        if self._weighted is None:
            count, total = self._exchange.sum(weighted, 0.0 if weight is None else float(weight))
            if count not in {0, self._world_size}:
                kinds = self._exchange.gather_bytes(bytes([weighted]))
                (one, first), (other, second) = ((kinds.index(bytes([kind])), _KINDS[kind]) for kind in (0, 1))
                raise MisuseError(f"the loss is {first}, on rank {one}, and {second}, on rank {other}: return one kind")
            self._weighted = weighted
            if weighted and self._unit is None:
                self._unit = _power_of_two(total / self._world_size)
        if weighted is not self._weighted:
            raise MisuseError(f"the loss was {_KINDS[self._weighted]}, and is now {_KINDS[weighted]}: return one kind")


def _read(loss: object) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A loss and its weight, which is NaN if it is not one.

    Raises:
        MisuseError: it is neither a tensor nor a sum with a weight.
    """
    if isinstance(loss, torch.Tensor):
        return loss, None
    match loss:
        case (torch.Tensor() as value, weight) if isinstance(loss, tuple):
            try:
                found = torch.as_tensor(weight, dtype=torch.float64).detach()
            except (TypeError, ValueError, RuntimeError) as reason:
                raise MisuseError(f"the weight of a loss must be a number, not {weight!r} ({reason})") from reason
            if found.numel() != 1:
                raise MisuseError(f"the weight of a loss must be one number, not of shape {tuple(found.shape)}")
            found = found.reshape(())
            return value, torch.where(found.isfinite() & (found >= 0), found, math.nan)
    held = f" of {len(loss)}" if isinstance(loss, tuple) else ""
    raise MisuseError(f"the loss of a batch must be {_KINDS[0]}, or {_KINDS[1]}, not a {type(loss).__name__}{held}")


def _power_of_two(number: float) -> float:
    """About as large; 1 where there is none."""
    if not _LEAST <= number <= _MOST:
        return 1.0
    return 2.0 ** round(math.log2(number))
