"""What to do about a Trainer's losses and gradients that are not finite."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import Trainer

from ddpjob_trainer.loop.finite import Finite, OnNan, values_of
from ddpjob_trainer.process.group import Group


class FiniteSteps:
    """Looks at the losses of all batches, of which the Trainer tells its callbacks only those that are finite."""

    def __init__(
        self, trainer: Trainer, group: Group, on_nan: OnNan, found: Callable[[int, str], None], *, step: int
    ) -> None:
        """Args:
        trainer: whose model and optimizer are complete.
        group: the processes of the training.
        on_nan: what to do.
        found: called with the step and a message, on all ranks.
        step: after which the training begins.
        """
        self._trainer = trainer
        self._losses: list[torch.Tensor] = []
        self._finite = Finite(
            group.exchange,
            trainer.model,
            trainer.optimizer,
            policy=on_nan,
            rank=group.rank,
            scaled=trainer.accelerator.scaler is not None,
            found=found,
        )
        self._finite.begin(step)

    def batch_done(self, loss: torch.Tensor) -> None:
        """The gradients of a batch are computed; its loss is this rank's."""
        self._losses.append(loss.detach())

    def before_change(self, step: int) -> None:
        """The optimizer is about to change the parameters: leave the step out if it is not finite, by the policy.

        Args:
            step: the last one before it.

        Raises:
            NonFiniteError: too many steps in a row were left out.
        """
        if not self._finite.decides_each_step:
            return
        self._finite.at(step)
        parameters = list(self._trainer.model.parameters())
        norm = nn.utils.get_total_norm([values_of(each.grad) for each in parameters if each.grad is not None])
        left_out = self._finite.leaves_out(norm, self._losses)
        if left_out:
            self._losses = []
            for each in parameters:
                # No optimizer changes a parameter without a gradient.
                each.grad = None
        # As after an overflow in float16: the Trainer then does not advance the schedule.
        self._trainer.optimizer._is_overflow = left_out  # noqa: SLF001 accelerate has no public way

    def step_done(self, step: int) -> None:
        """A step is done."""
        self._finite.at(step - 1)
        losses, self._losses = self._losses, []
        self._finite.add(losses, left_out=not losses)

    def allows_save(self, step: int, saved: int | None, *, due: bool) -> bool:
        """Whether the state may be saved; see `Finite`.

        Args:
            step: the last finished one.
            saved: step of the newest checkpoint, None without one.
            due: whether it is about to be.

        Raises:
            NonFiniteError: by the policy.
        """
        self._finite.at(step)
        return self._finite.allows_save(saved, due=due)
