"""How large a step is when the number of ranks is another one than at first."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ddpjob_trainer.data.sharing import StepSize


class BatchPolicy(StrEnum):
    """What becomes of the global batch when the number of ranks changes."""

    CONSTANT = "constant"
    """It stays what it was when the training began: the ranks that there are share it."""
    SCALE = "scale"
    """It grows and shrinks with the ranks: each of them has as many samples as before."""


@dataclass(frozen=True, slots=True)
class Began:
    """With what the global batch of a training was chosen: it is the product of all three."""

    batch_size: int
    """Samples per batch, 0 if that is not known: then the global batch is a number of batches."""
    accumulate: int
    """Batches per rank."""
    ranks: int

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Began":
        """From a checkpoint.

        Raises:
            ValueError: it is damaged; the message names the number.
        """
        values = dict[str, int]()
        for name, least in (("batchSize", 0), ("accumulate", 1), ("ranks", 1)):
            value = state.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"globalBatch.{name} must be a whole number of at least {least}, not {value!r}")
            values[name] = value
        return cls(values["batchSize"], values["accumulate"], values["ranks"])

    def state(self) -> dict[str, int]:
        """For a checkpoint."""
        return {"batchSize": self.batch_size, "accumulate": self.accumulate, "ranks": self.ranks}

    def words(self, ranks: int | None = None) -> str:
        """How large it is: `64 samples`, or `4 batches`; with other ranks than its own if they are given."""
        batches = self.accumulate * (ranks or self.ranks)
        many, what = (batches * self.batch_size, "sample") if self.batch_size else (batches, "batch")
        plural = {"sample": "samples", "batch": "batches"}[what]
        return f"{many} {what if many == 1 else plural}"

    def same_program(self, other: "Began") -> bool:
        """Whether the program asks for the same batches per rank."""
        return (self.batch_size, self.accumulate) == (other.batch_size, other.accumulate)


def began_with(policy: BatchPolicy, before: Began | None, now: Began, *, this_process: bool) -> Began:
    """What the global batch follows from.

    Args:
        policy: what becomes of it with another number of ranks.
        before: what it followed from so far; None: the training begins, or its checkpoint does not say.
        now: what the program asks for, and the ranks that there are.
        this_process: whether `before` comes from this process, and not from a checkpoint. A program that is started
            again and asks for other batches has chosen a new batch size, perhaps by dividing by the number of ranks.
    """
    if policy is BatchPolicy.SCALE or before is None or not (this_process or before.same_program(now)):
        return now
    return Began(now.batch_size, now.accumulate, before.ranks)


def step_size(began: Began, ranks: int, *, several: bool) -> StepSize:
    """The size of a step on so many ranks.

    Args:
        began: what the global batch follows from.
        ranks: that there are.
        several: whether a rank can compute several batches per step; if not, a step has at most one per rank.
    """
    return StepSize(began.accumulate, began.ranks if several else min(began.ranks, ranks))
