"""A step that a session has handed out: it is committed, or handed out again."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddpjob_trainer.data.moving import to_device
from ddpjob_trainer.data.sharing import Part
from ddpjob_trainer.loop.before import Buffers
from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.finite import Finite
from ddpjob_trainer.loop.optimization import Optimizing
from ddpjob_trainer.loop.rewinding import Rewinding
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError

Record = tuple[torch.Tensor, torch.Tensor, float]
"""Loss of this rank, norm of the gradients, learning rate."""


class StepLost(Exception):  # noqa: N818 not an error: the step is computed again
    """Raised within the `with` of a step, on all ranks together, before any optimizer has changed a parameter.

    The step is handed out again, with the same batches and random numbers; nothing of it has counted.
    """


class Committing(Protocol):
    """What a step is reported to; a Session is one."""

    def enter(self) -> None:
        """The loop computes a step now."""

    def commit(self, step: "Step") -> None:
        """Count the step."""

    def is_lost_by(self, reason: BaseException) -> bool:
        """Whether an exception comes of a rank that was lost: then the ranks meet when the loop asks for a step."""


class Computing:
    """What the steps of one training compute with."""

    def __init__(
        self,
        device: torch.device,
        models: Sequence[DistributedDataParallel],
        optimizings: Sequence[tuple[Optimizer, Optimizing, Finite]],
        course: Course,
        *,
        several: bool,
        rewinding: Rewinding | None = None,
    ) -> None:
        """Args:
        device: where batches go.
        models: that are trained.
        optimizings: of all optimizers; the loss that is logged is the first one's.
        course: of the training.
        several: whether a loop is given all batches of a step, and not the only one.
        rewinding: of all that is trained and kept, for the loss of a rank; None ends with it.
        """
        self.device = device
        self.several = several
        self.models = models
        self.course = course
        self._optimizings = optimizings
        optimizings[0][1].own_time = course.own_time
        for model in models:
            course.own_time.attach(model)
        self._before = _Before(models)
        self._part: Part | None = None
        self._computed = False
        self._failed = False
        self._rewinding = rewinding
        self.begun = False
        self.changed = False
        """Whether an optimizer has changed parameters in this step."""
        self.record: Record | None = None

    def hand_out(self) -> None:
        """A step is about to be given to the loop, which may do something before it begins."""
        self.changed = False
        self._before.remember(self.course.position.step)
        if self._rewinding is not None:
            self._rewinding.remember()

    def begin(self) -> None:
        """A step begins, or begins again."""
        self.begun, self.changed, self.record, self._part, self._failed = True, False, None, None, False
        for _, optimizing, _ in self._optimizings:
            optimizing.forget()
        for model in self.models:
            for each in model.parameters():
                each.grad = None

    def end(self) -> None:
        """The step ends; not every one has changed parameters with all optimizers, or only once."""
        for _, _, finite in self._optimizings:
            finite.at(self.course.position.step + 1)

    def ended(self) -> None:
        """The step is committed."""
        if self._rewinding is not None:
            self._rewinding.end()

    def undo(self) -> None:
        """The step is to begin again."""
        self._before.restore(self.course.position.step)

    def rewind(self) -> list[str]:
        """Put everything back to where the step was handed out; returns what cannot be put back."""
        if self.changed:
            return ["the parameters"]
        self.undo()
        return [] if self._rewinding is None else self._rewinding.rewind()

    def batch_begun(self, part: Part) -> None:
        """This rank computes with a batch."""
        self._part, self._computed = part, False

    def backward(self, loss: object) -> None:
        """Compute the gradients of a loss, as its share of the step's."""
        part = self._known
        # Whatever a program does about an exception: gradients that were not exchanged change no parameters.
        self._failed = True
        if not self._computed:
            self._computed = True
            self.course.loss_computed()
        elif isinstance(loss, tuple):
            raise MisuseError("a batch has one loss with a weight: call session.backward() with the sum of its losses")
        self._optimizings[0][1].backward(loss, part.weight, last=part.last)
        if part.last:
            self.course.finish_log_step()
        self._failed = False

    def step(self, optimizers: Sequence[Optimizer]) -> bool:
        """Change the parameters; whether all of the optimizers have."""
        part = self._known
        if not part.last:
            raise MisuseError("session.step() comes after the last batch of a step: use all that `with step as` gave")
        if not self._computed:
            raise MisuseError(
                "session.step() comes after session.backward(loss), which takes the place of loss.backward()"
            )
        if self._failed:
            raise MisuseError("session.backward() has failed in this step, which has no gradients to go on with")
        chosen = [each for each in self._optimizings if not optimizers or any(each[0] is one for one in optimizers)]
        if len(chosen) < len(optimizers):
            raise MisuseError('session.step() got an optimizer that is not kept: session.keep("name", optimizer)')
        before, first = self.course.position.step, self._optimizings[0][1]
        log = self.course.is_log_step(before + 1)
        if chosen[0][1] is not first:
            # All losses since the last change of parameters are of this one.
            chosen[0][1].take_losses(first)
        if self._rewinding is not None and not self.changed:
            self._rewinding.change()
        for _, optimizing, finite in chosen:
            self.changed = True
            finite.at(before)
            measure = log and optimizing is first
            self.record = optimizing.step(finite, measure=measure, scale=part.scale) or self.record
        return all(optimizing.taken for _, optimizing, _ in chosen)

    @property
    def _known(self) -> Part:
        if self._part is None:
            raise MisuseError("the step has not read any of its batches yet")
        return self._part


class Step:
    """One step of the optimizer, to be computed within `with`; that gives its batch on the rank's device.

    With `Optimization.accumulate` above 1, or `batch_policy="constant"`, it gives an iterator over the step's batches
    instead. What belongs to the
    step, such as the update of a mean of the weights, is within the `with` too: it is left by a step that is lost.
    """

    def __init__(
        self,
        session: Committing,
        computing: Computing,
        epoch: int,
        first: tuple[Any, Part],
        rest: Iterator[tuple[Any, Part]],
    ) -> None:
        """Args:
        session: counts the step once it is committed.
        computing: what it computes with.
        epoch: completed ones.
        first: its first batch.
        rest: further batches, of this and of later steps.
        """
        self._session = session
        self._computing = computing
        self.number = computing.course.position.step + 1
        """Counted from 1, including those before a resume."""
        self.epoch = epoch
        """Completed epochs, before this step."""
        # What it is given when it is handed out again.
        self._read = [first]
        self._rest = rest
        self._counted = 0
        self._lost = False
        self._given: Generator[Any] | None = None
        self.committed = False
        """Whether it counts: then it is never handed out again."""

    @property
    def end(self) -> Part:
        """Where the step ends."""
        return self._read[-1][1]

    @property
    def ends_epoch(self) -> bool:
        """Whether it counts, and was the last step of its epoch."""
        return self.committed and self.end.ends_epoch

    @property
    def record(self) -> Record | None:
        """What was read of it, on a log step."""
        return self._computing.record

    def __enter__(self) -> Any:  # noqa: ANN401 what the loader holds
        self._lost = False
        self._session.enter()
        self._computing.begin()
        self._given = self._batches()
        return self._given if self._computing.several else next(self._given)

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        computing = self._computing
        computing.begun = False
        if kind is None:
            if not computing.changed:
                raise MisuseError("a step ends with session.step(), within its `with`")
            self.committed = True
            computing.end()
            try:
                self._session.commit(self)
            except RuntimeError as failure:
                if not self._session.is_lost_by(failure):
                    raise
            computing.ended()
            return False
        if self._given is not None:
            # What it has told the models about the exchange holds for this attempt alone.
            self._given.close()
        if not issubclass(kind, StepLost):
            self._lost = reason is not None and self._session.is_lost_by(reason)
            return self._lost
        if computing.changed:
            raise MisuseError("StepLost came after session.step(): the step cannot be computed again") from reason
        computing.undo()
        self._lost = True
        return True

    def leave(self) -> None:
        """Another one takes its place: let go of the loader."""
        self._rest = iter(())

    def check(self) -> None:
        """Raises MisuseError if the loop has neither computed nor lost the step."""
        if not (self.committed or self._lost):
            raise MisuseError("the loop asked for the next step without computing this one: `with step as batch:`")

    def _batches(self) -> Generator[Any]:
        computing, index = self._computing, 0
        with ExitStack() as exits:
            while index == 0 or not self._read[index - 1][1].last:
                if index == len(self._read):
                    computing.course.await_batch()
                    self._read.append(next(self._rest))
                batch, part = self._read[index]
                index += 1
                if index > self._counted:
                    self._counted = index
                    computing.course.batch_arrived(part.samples)
                computing.batch_begun(part)
                exits.close()
                if not part.last:
                    for model in computing.models:
                        exits.enter_context(model.no_sync())
                yield to_device(batch, computing.device)


class _Before:
    """What a forward pass changes: the models' buffers, and the random numbers."""

    def __init__(self, models: Sequence[DistributedDataParallel]) -> None:
        self._buffers = Buffers(models)
        self._generators: tuple[Any, ...] = ()

    def remember(self, step: int) -> None:
        self._buffers.remember(step)
        self._generators = randomness.generators()

    def restore(self, step: int) -> None:
        self._buffers.restore(step)
        randomness.set_generators(self._generators)
