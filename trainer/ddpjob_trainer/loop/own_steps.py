"""Leads a loop of one's own: hands out its steps, saves between them, and goes on with them when a rank is lost."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from torch.utils.data import Dataset

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.source import Source
from ddpjob_trainer.data.sources import source_of
from ddpjob_trainer.data.streams import Stream
from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.handed_out import Computing, Step
from ddpjob_trainer.loop.limits import Limits, Ways
from ddpjob_trainer.loop.losses import Losses
from ddpjob_trainer.loop.own_evaluations import OwnEvaluations
from ddpjob_trainer.loop.planning import planned_steps
from ddpjob_trainer.loop.registered import Registered
from ddpjob_trainer.loop.survival import RankLostError
from ddpjob_trainer.observability.listener import Listener, Plan
from ddpjob_trainer.observability.log import EpochLines
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.stop import MORE_THAN_BEFORE, forget_trainings

_log = logging.getLogger(__name__)

_SAVE: Final = "save"
_BEST: Final = "best"


class OwnSteps:
    """The steps of a session; entered by all ranks."""

    def __init__(
        self,
        group: Group,
        registered: Registered,
        evaluations: OwnEvaluations,
        *,
        checkpoints: Checkpoints | None,
        listeners: list[Listener],
        ways: Ways,
    ) -> None:
        """Args:
        group: the processes of the training.
        registered: what is trained and kept.
        evaluations: of the loop.
        checkpoints: where to save and resume; None does neither.
        listeners: are notified of everything.
        ways: what was asked for.
        """
        self._group, self._registered, self._evaluations = group, registered, evaluations
        self._checkpoints, self._listeners, self._ways = checkpoints, listeners, ways
        self._limits, self._running = Limits(), ExitStack()
        self._stream: Stream | None = None
        self._computing: Computing | None = None
        self._step: Step | None = None
        self._epoch = -1
        self.resumed: bool | None = None
        """Whether there was a checkpoint, or a rank with a state; None before."""
        self.should_stop = False
        """Whether all ranks stop when the loop asks for the next step, or ends."""
        self._asked = self._attached = self._planned = False
        self._losses = Losses(group, lambda: self._is_committed)
        # Whether the loop has asked for a checkpoint that the ranks owe it.
        self._saves = False
        self._enter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if reason is not None:
            self._losses.end(reason)
        return self._running.__exit__(kind, reason, traceback)

    @property
    def position(self) -> Position:
        """How far the training has come."""
        return self.course.position

    @property
    def current(self) -> Computing | None:
        """What the step that is being computed computes with; None between two steps."""
        return self._computing if self._computing is not None and self._computing.begun else None

    def notify(self, call: Callable[[Listener], None]) -> None:
        """Notify all listeners."""
        self.course.notify(call)

    def registering(self) -> AbstractContextManager[None]:
        """Something is registered in the body, which may exchange something."""
        return self._losses.foreign.own()

    def resume(self) -> bool:
        """Go on where a checkpoint is, or another rank; whether there was one."""
        while self.resumed is None:
            try:
                self.resumed = self._resume()
            except RuntimeError as reason:
                if not self._losses.goes_on(reason):
                    raise
            else:
                break
            self._regroup()
        return self.resumed

    def steps(self, loader: Iterable[Any] | Dataset[Any], *, epochs: int, max_steps: int | None) -> Iterator[Step]:
        """The steps that are left; see `Session.steps`."""
        if self._asked:
            self._object("session.steps() is called a second time")
        self._asked = True
        # A new loop begins in training mode, also within an epoch; a loss does not come here.
        self._epoch = -1
        while True:
            try:
                yield from self._handed_out(loader, epochs, max_steps)
            except GeneratorExit:
                self._losses.close()
                raise
            except BaseException as reason:
                if not self._losses.goes_on(reason):
                    raise
            else:
                break
            # Only here is nothing left of what the exception has passed through.
            self._regroup()
        self._losses.close()

    def enter(self) -> None:
        """The loop computes a step now; `Step` calls it."""
        self._losses.enter()

    def commit(self, step: Step) -> None:
        """Count a step that has been computed; `Step` calls it."""
        course, end = self.course, step.end
        epoch, consumed = (step.epoch + 1, 0) if end.ends_epoch else (step.epoch, end.consumed)
        position = Position(epoch, consumed, self.position.step + 1)
        course.epoch_ended = True
        course.step_finished(position, end.total, step.record)
        self.should_stop = course.agreed_to_stop()

    def is_lost_by(self, reason: BaseException) -> bool:
        """Whether an exception comes of a rank that was lost: then the ranks meet when the loop asks for a step."""
        return self._losses.is_lost_by(reason)

    def evaluation(self) -> AbstractContextManager[None]:
        """Evaluate in the body; see `Session.evaluation`."""
        return self._evaluations.measuring(self.course, self._group, self._registered, self._ways.how, self._attempt)

    def evaluated(self, found: float | Mapping[str, float] | None) -> None:
        """Show what was found; see `Session.evaluated`."""
        if self._losses.lost and not self._is_committed:
            # It will be found again, once the step is made again.
            return
        between_steps = self.resumed is not None and self.current is None
        self._evaluations.evaluated(found, self.course, self._attempt, between_steps=between_steps)

    def save(self) -> None:
        """Save now, between two steps.

        Raises:
            SaveError: it could not be written.
        """
        if not self._losses.attempt(self.course.save, needs_first=False):
            self._saves = self._is_committed

    def end(self) -> None:
        """The session ends without an exception.

        Raises:
            Stopped: all ranks were asked to stop, and have saved.
            SaveError: the last step could not be saved.
            NotMetError: a rank was lost meanwhile.
        """
        if self._losses.lost and self._losses.survival is not None:
            raise self._losses.survival.give_up("a rank was lost where the loop has ended")
        if self.resumed is None:
            return
        self._evaluations.save(self.course, due=True)
        if self.should_stop:
            self.course.stop()
        if self.position.step != self.course.total_steps:
            self.course.shortened()

    def _enter(self) -> None:
        ways = self._ways
        self.course = Course(
            self._group,
            state=self._state,
            finite=self._registered.finite,
            checkpoints=self._checkpoints,
            listeners=self._listeners,
            log_every=ways.log_every,
            best_step=lambda: self._evaluations.best_step,
            # A loop of one's own may change at any time what the optimizer changes.
            during_next_step=False,
            survival=self._losses.survival,
            clock=ways.clock,
        )
        self._running = ExitStack()
        self._running.enter_context(self.course.running())

    def _leave(self) -> None:
        """Leave what was set up for the ranks that there were."""
        if self._computing is not None:
            self._computing.course.own_time.detach()
        if self._step is not None:
            self._step.leave()
        self._computing = self._step = None
        self._running.__exit__(RankLostError, RankLostError("connection lost"), None)
        self._registered.leave()

    def _resume(self) -> bool:
        registered, losses = self._registered, self._losses
        losses.decide(registered, self._ways.how, self._ways.name)
        survival = self.course.survival = losses.survival
        if survival is not None:
            survival.begin()
            if survival.generation:
                # What the ranks agree on begins again on all of them.
                self._leave()
                # A new process has counted itself already, where the ranks now meet.
                forget_trainings(MORE_THAN_BEFORE)
                registered.renew()
                if self._stream is not None:
                    registered.kept.add("loader", self._stream)
                self._enter()
                if not survival.finds:
                    raise survival.give_up("no rank has the state of a whole step")
                if not registered.is_alike():
                    raise survival.give_up("the models differ, or parameters are frozen on some ranks only")
                losses.meet()
        with losses.foreign.own():
            share = survival is None or not survival.generation
            registered.attach(self._listeners, share=share, known=self._attached)
            self._attached = True
            registered.check()
            resumed = self.course.resume(self._ways.seed)
        found = self.course.found
        self._saves = bool(found.get(_SAVE))
        self._evaluations.go_on(found.get(_BEST))
        return resumed

    def _regroup(self) -> None:
        """Leave the group, with what this rank has, and form another one."""
        survival = self._losses.survival
        if survival is None:
            return
        more = {_SAVE: self._saves, _BEST: self._evaluations.best_at}
        # Where none is set up yet, what was kept before still holds.
        self.course.keep(torn=self._is_torn(), more=more, misses=self._losses.misses)
        self._leave()
        gc.collect()
        self._losses.begin()
        self.resumed, self.should_stop = None, False
        survival.regroup()

    def _is_torn(self) -> bool:
        """Whether what this rank has is not the state after its last committed step, and cannot be made so."""
        if self._computing is None or self._step is None or self._is_committed:
            return False
        changed = self._computing.rewind()
        if changed:
            _log.warning("this rank cannot give its state to others: the lost step has changed %s", ", ".join(changed))
        return bool(changed)

    def _object(self, reason: str) -> None:
        self._losses.oppose(reason)
        self.course.survival = self._losses.survival

    def _attempt(self, work: Callable[[], object]) -> bool:
        if self.current is None:
            return self._losses.attempt(work)
        # The step itself absorbs what comes of a lost rank.
        work()
        return True

    @property
    def _is_committed(self) -> bool:
        """Whether the last step that was handed out counts."""
        return self._step is None or self.position.step >= self._step.number

    def _handed_out(self, loader: Iterable[Any] | Dataset[Any], epochs: int, max_steps: int | None) -> Iterator[Step]:
        source = self._source(loader)
        resumed, losses = self.resume(), self._losses
        if losses.foreign.seen:
            self._object("the ranks exchange something between session.resume() and session.steps()")
        if losses.survival is not None:
            losses.survival.arrive("the steps of")
        source.check()
        course, limits, registered, how = self.course, self._limits, self._registered, self._ways.how
        limits.ask(epochs, max_steps, self.position)
        size = registered.batch.begin(source, registered.modules, over=limits.reached(self.position))
        self._plan(source, epochs, max_steps, resumed=resumed)
        self._catch_up()
        self._computing = computing = Computing(
            self._group.device,
            registered.trained,
            registered.optimizings,
            course,
            several=how.several,
            rewinding=None if losses.survival is None else registered.rewinding(),
        )
        losses.absorbs = True
        while not limits.reached(self.position):
            start = self.position
            self._begin_epoch(source.steps(start.consumed, size))
            batches = iter(source.batches(start, size))
            for first in batches:
                self._check_stream()
                self._step = step = Step(self, computing, start.epoch, first, batches)
                while not step.committed:
                    computing.hand_out()
                    yield step
                    if losses.lost:
                        raise RankLostError("connection lost: the step is handed out again")
                    step.check()
                self._end_step(ends_epoch=step.ends_epoch)
                if limits.reached(self.position):
                    break
                course.begin_step()
            else:
                if self.position.epoch == start.epoch:
                    # Of some loaders the end is known only when they have nothing more.
                    course.position = Position(start.epoch + 1, 0, self.position.step)
                    course.epoch_ended = True
                    self._end_step(ends_epoch=True)
        course.save_rest()
        limits.complete()
        self._computing = None
        course.total_steps = self.position.step

    def _source(self, loader: Iterable[Any] | Dataset[Any]) -> Source:
        source = source_of(loader, self._group, self._ways.seed)
        if isinstance(source, Stream):
            if self._stream is None or self.resumed is not None:
                # After a loss all is kept again once the ranks have met.
                self._registered.kept.add("loader", source)
            self._stream = source
            self._check_stream()
        return source

    def _check_stream(self) -> None:
        if self._stream is not None and self._stream.obstacle is not None:
            self._object(self._stream.obstacle)

    def _catch_up(self) -> None:
        """Do what the ranks still owed when one of them was lost."""
        if self._saves:
            self.course.save()
            self._saves = False
        if self.course.epoch_ended:
            self._end_step(ends_epoch=self.position.consumed == 0)
        else:
            self._evaluations.save(self.course, due=False)

    def _plan(self, source: Source, epochs: int, max_steps: int | None, *, resumed: bool) -> None:
        done, course = self.position, self.course
        total = planned_steps(source, done, self._registered.batch.size, epochs=epochs, max_steps=max_steps)
        course.total_steps = total
        if self._planned:
            return
        self._planned = self._losses.survival is not None
        self._listeners.insert(0, EpochLines(self._group, source.batch_size))
        course.notify(lambda listener: listener.started(Plan(epochs, total, done.step, resumed=resumed)))

    def _begin_epoch(self, left: int | None) -> None:
        course, epoch = self.course, self.position.epoch
        course.stop_if_agreed_now()
        course.notify(lambda listener: listener.epoch_started(epoch + 1, left or 0))
        if epoch != self._epoch:
            # Not after a loss: the loop may have frozen layers meanwhile.
            self._epoch = epoch
            for model in self._registered.trained:
                model.train()
        course.begin_step()

    def _end_step(self, *, ends_epoch: bool) -> None:
        # Only now: what the loop's body has done after the `with` belongs to the step.
        every, course = self._ways.save_every_steps, self.course
        ended = ends_epoch and self.position.epoch % self._ways.save_every == 0
        self._evaluations.save(course, due=ended or (every is not None and self.position.step % every == 0))
        course.epoch_ended = False
        if self.should_stop:
            course.stop()

    def _state(self) -> TrainingState:
        if self._stream is not None:
            self._stream.gather()
        return replace(self._registered.state(), early_stop=self._evaluations.history)
