"""Where the batches of a training come from."""

from collections.abc import Iterator
from typing import Any, Protocol

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Part, StepSize


class Source(Protocol):
    """Hands out the batches of this rank, epoch by epoch, from any position on."""

    @property
    def batch_size(self) -> int:
        """Samples per rank and batch, 0 if they differ."""

    @property
    def divides(self) -> bool:
        """Whether a step is shared by samples, and not by whole batches."""

    def check(self) -> None:
        """Check that there is something to train on, the same for all ranks; a collective.

        Raises:
            MisuseError: the check has failed; on all ranks.
        """

    def check_step(self, step: StepSize) -> None:
        """Check that an epoch has a step of this size; the same on all ranks.

        Raises:
            MisuseError: it has none.
        """

    def steps(self, consumed: int, step: StepSize) -> int | None:
        """Steps of the optimizer in the rest of an epoch; None if that is not known before it ends."""

    def batches(self, position: Position, step: StepSize) -> Iterator[tuple[Any, Part]]:
        """What is left of the epoch for this rank; call it again only when that has ended.

        Args:
            position: in the epoch; its `consumed` is what the last step's `Part` said.
            step: its size.
        """
