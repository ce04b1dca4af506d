"""The course of a training, with any loop: what is reported, saved and resumed, and where all ranks stop."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.checkpointing.step_gate import Pause
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.loop.drifting import check_together
from ddpjob_trainer.loop.finite import Finite
from ddpjob_trainer.loop.own_time import OwnTime
from ddpjob_trainer.loop.survival import RankLostError, Survival
from ddpjob_trainer.observability.listener import Listener, LogRecord, overridden
from ddpjob_trainer.observability.log_steps import Agreed, LogSteps
from ddpjob_trainer.observability.slowest import SlowestRank
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.stop import Stopped, StopRequests

_log = logging.getLogger(__name__)


class Course:
    """Reports a training to its listeners, saves and resumes it, and stops all ranks after the same step.

    All ranks call its methods at the same points. A step is: `begin_step`, for each of its batches `batch_arrived`,
    `loss_computed` and, if another one follows, `await_batch`; then `finish_log_step` and `step_finished`.
    """

    def __init__(
        self,
        group: Group,
        *,
        state: Callable[[], TrainingState],
        finite: Finite,
        checkpoints: Checkpoints | None,
        listeners: Sequence[Listener],
        log_every: int,
        best_step: Callable[[], int | None] = lambda: None,
        during_next_step: bool = True,
        survival: Survival | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        group: the processes of the training.
        state: what checkpoints hold.
        finite: what to do about values that are not finite.
        checkpoints: where to save and resume; None does neither.
        listeners: are notified of everything.
        log_every: steps between two readings of the loss.
        best_step: step of a checkpoint to keep in addition to the newest ones.
        during_next_step: with asynchronous saves, copy what only the optimizer changes after `save` has returned.
        survival: of lost ranks; None ends with them.
        clock: seconds.
        """
        self._group = group
        self._state = state
        self._checkpoints = checkpoints
        self._listeners = listeners
        # What a step calls: most listeners are interested in little of it, and calls that do nothing add up.
        self._hear_step = overridden(listeners, Listener.step_finished)
        self._hear_loss = overridden(listeners, Listener.loss_computed)
        self._hear_activity = overridden(listeners, Listener.activity_changed)
        self._log_every = log_every
        self._best_step = best_step
        self._during_next_step = during_next_step
        self.survival = survival
        """Of lost ranks; None ends with them."""
        self._clock = clock
        self._log_steps = LogSteps(group.exchange, self._logged, self._check)
        self._finite = finite
        self._requests = StopRequests(
            group, clock=clock, left=lambda: self.survival is not None and self.survival.is_broken()
        )
        self.own_time = OwnTime.on(group.device, rank=group.rank, clock=clock)
        """What this rank does in a step without waiting for another."""
        self._slowest = SlowestRank()
        self.position = Position()
        """How far the training has come."""
        self.total_steps = 0
        """As planned: the last one is a log step."""
        self.resumed_from: int | None = None
        """Step of the checkpoint that the training went on from."""
        self.epoch_ended = False
        """Whether it goes on at the end of an epoch, with what follows that."""
        self.found: dict[str, Any] = {}
        """What the rank whose state was taken over has said besides."""
        # Whether listeners, which may have a state, do not know of the last step yet.
        self._counting = False
        # What a resume would find; at the beginning nothing is worth saving.
        self._saved = Position()
        self._pauses = dict[int, Pause]()
        self._prepared = False
        self._seed = 0
        self._consumed = 0
        # When the step began, and when the wait for its current batch did.
        self._before = self._mark = 0.0
        self._data_seconds, self._samples = 0.0, 0

    @property
    def samples(self) -> int:
        """Samples that all ranks together have consumed since this process started."""
        return self._consumed

    @contextmanager
    def running(self) -> Iterator[None]:
        """The training is in the body; its end is reported, and what is being saved is finished.

        Raises:
            Stopped: the body has raised it.
            SaveError: a checkpoint could not be written; with asynchronous ones on rank 0 alone after the step in which
                it failed, whose end the others notice.
            RankLostError: the body has raised it: the training goes on in another way.
        """
        try:
            with self._requests:
                yield
                self.finish_saving()
                self.notify(lambda listener: listener.finished())
        except RankLostError:
            if self._checkpoints is not None:
                self._checkpoints.close()
            raise
        except Stopped as stopped:
            step = stopped.step
            self.notify(lambda listener: listener.stopped(step))
            raise
        except BaseException:
            self._log_steps.finish_if_soon()
            if self._checkpoints is not None:
                self._checkpoints.close()
                self._report_saved()
            self.notify(lambda listener: listener.failed())
            raise

    def resume(self, seed: int) -> bool:
        """Seed this rank's generators, and continue from the newest checkpoint; whether there was one.

        Raises:
            MisfitError: the checkpoint belongs to another model.
            ResumeError: there are checkpoints, but none can be resumed from.
            MisuseError: the state holds something that a checkpoint cannot.
        """
        self._seed = seed
        randomness.seed_everything(seed + self._group.rank)
        found = None
        if self._checkpoints is not None:
            # What can never be saved is said before the first step.
            self._checkpoints.check(self._state())
        if self._take_over():
            # What the ranks had measured of each other is gone with the group.
            self.notify(lambda listener: listener.slowest_changed(None))
            return True
        if self._checkpoints is not None:
            found = self._checkpoints.resume(self._state())
        if found is not None:
            self.position = self._saved = found
            self.resumed_from = found.step
            _log.info("resumed in epoch %d after step %d", found.epoch + 1, found.step)
        elif self.survival is not None and self.survival.is_ruined:
            raise self.survival.give_up("no rank has the state of a whole step, and there is no checkpoint")
        self._finite.begin(self.position.step)
        return found is not None

    def keep(self, *, torn: bool, more: dict[str, Any] | None = None, misses: bool = False) -> None:
        """After a `RankLostError`: keep what this rank has, without a checkpoint that is being written.

        Args:
            torn: whether parameters may have changed since the last finished step.
            more: what else the other ranks need to know, as JSON.
            misses: whether this rank needs what only rank 0 finds after this step.
        """
        if self.survival is not None:
            self.survival.keep(
                self._state(),
                self.position,
                saved=Position() if self._saved.step in self._pauses else self._saved,
                torn=torn or self._counting,
                epoch_ended=self.epoch_ended,
                more=more,
                misses=misses,
            )

    def begin(self, activity: Activity) -> None:
        """This rank now does this."""
        self._requests.activity_changed(activity)
        for activity_changed in self._hear_activity:
            activity_changed(activity)

    def notify(self, call: Callable[[Listener], None]) -> None:
        """Notify all listeners."""
        for listener in self._listeners:
            call(listener)

    def begin_step(self) -> None:
        """The wait for the first batch of a step begins."""
        randomness.seed_step(self._seed, self._group.rank, self.position.step)
        self.begin(Activity.DATA)
        self._before = self._mark = self._clock()
        self._data_seconds, self._samples = 0.0, 0
        if self._group.world_size > 1:
            self.own_time.begin_step()

    def await_batch(self) -> None:
        """The wait for another batch of the same step begins."""
        self.begin(Activity.DATA)
        self._mark = self._clock()
        self.own_time.await_data()

    def batch_arrived(self, samples: int) -> None:
        """A batch with this number of samples is there."""
        self._data_seconds += self._clock() - self._mark
        self._samples += samples
        self.own_time.compute()
        self.begin(Activity.STEP)

    def loss_computed(self) -> None:
        """The forward pass is done, and the backward pass begins."""
        local = self._clock() - self._mark
        for loss_computed in self._hear_loss:
            loss_computed(local)

    def is_log_step(self, step: int) -> bool:
        """Whether the loss of a step is read back."""
        # The first one shows immediately that training has begun, the last one remains on display.
        return self._consumed == 0 or step == self.total_steps or step % self._log_every == 0

    def step_finished(
        self, position: Position, consumed: int, record: tuple[torch.Tensor, torch.Tensor, float] | None
    ) -> None:
        """The optimizer has made a step.

        Args:
            position: of the training, after it.
            consumed: samples that all ranks together have consumed in it.
            record: on a log step, the loss of this rank, the norm of the gradients and the learning rate.
        """
        first = self._consumed == 0
        self._consumed += consumed
        self._counting = True
        self.position = position
        step, seconds = position.step, self._clock() - self._before
        self.own_time.end_step(seconds)
        for step_finished in self._hear_step:
            step_finished(step, self._samples, seconds, self._data_seconds)
        self._counting = False
        if record is not None:
            loss, norm, rate = record
            suspicious = self._finite.suspicious(norm)
            own = (*self.own_time.taken(), rate) if self._group.world_size > 1 else ()
            self._log_steps.begin(
                loss, norm, suspicious, step=step, learning_rate=rate, consumed=self._consumed, own=own
            )
            if first:
                # Immediately, whatever the next step waits for: training has begun.
                self._log_steps.finish()
        self._report_saved()
        if not self._prepared:
            self._prepare_saving()

    def finish_log_step(self) -> None:
        """Report a log step that has begun: without a wait after a backward pass, to which all ranks have come."""
        self._log_steps.finish()

    def save(self) -> None:
        """Save a checkpoint of the current position, unless its state is not finite.

        Raises:
            SaveError: it could not be written.
            NonFiniteError: the loss or the state is not finite, by the policy.
        """
        if self._checkpoints is None:
            return
        # If this process dies right after the save, no other process reports the step.
        self._log_steps.finish()
        self.begin(Activity.CHECKPOINT)
        if not self._finite.allows_save(self._saved_step):
            self.begin(Activity.STEP)
            return
        pause = self._checkpoints.save(
            self._state(), self.position, during_next_step=self._during_next_step, keep=self._best_step()
        )
        self._pauses[self.position.step] = pause
        # The others have waited for rank 0 to write.
        self.own_time.saved(pause.seconds, own=self._group.rank == 0)
        self._saved = self.position
        self.begin(Activity.STEP)
        self._report_saved()

    def stop_if_agreed(self) -> None:
        """After a step: save and stop if any rank was asked to; the ranks agree on it about once per second.

        Raises:
            Stopped: all ranks stop, after this step.
        """
        self._stop_if(self.agreed_to_stop())

    def agreed_to_stop(self) -> bool:
        """After a step: whether all ranks are to `stop`; they agree on it about once per second."""
        return self._requests.agreed(self.position.step)

    def stop_if_agreed_now(self) -> None:
        """The same at any other point; the ranks agree on it immediately.

        Raises:
            Stopped: all ranks stop, after the last step.
        """
        self._stop_if(self._requests.agreed_now(self.position.step))

    def save_rest(self) -> None:
        """Save what has changed since the last checkpoint, if anything has.

        Raises:
            SaveError: it could not be written.
        """
        self._log_steps.finish()
        if self.position != self._saved:
            self.save()

    def shortened(self) -> None:
        """Report that the training ends at its current position, before what was planned."""
        epoch, step = self.position.epoch + (self.position.consumed > 0), self.position.step
        self.total_steps = step
        self.notify(lambda listener: listener.shortened(epoch, step))

    def _take_over(self) -> bool:
        """Go on with what the other ranks have, if one was replaced and they have anything."""
        found = None if self.survival is None else self.survival.take_over(self._state())
        if found is None:
            return False
        self.position, self._saved, self.epoch_ended = found.position, found.saved, found.epoch_ended
        self.found = found.more
        self.resumed_from = self._saved_step
        self._finite.begin(self.position.step)
        return True

    def _stop_if(self, agreed: bool) -> None:  # noqa: FBT001 what the ranks have agreed on
        if agreed:
            self.stop()

    def stop(self) -> None:
        """Save, and stop all ranks.

        Raises:
            Stopped: always.
        """
        self.save_rest()
        self.finish_saving()
        saved = "saved" if self._saved_step == self.position.step else "not saved"
        _log.info("stop requested: all ranks stop after step %d (%s)", self.position.step, saved)
        raise Stopped(self.position.step)

    def _prepare_saving(self) -> None:
        self._prepared = True
        if self._checkpoints is not None:
            self._checkpoints.prepare(self._state())

    def finish_saving(self) -> None:
        """Wait until what is being saved is on disk.

        Raises:
            SaveError: it could not be written.
        """
        if self._checkpoints is None or not self._checkpoints.asynchronous:
            return
        self.begin(Activity.CHECKPOINT)
        self._checkpoints.finish()
        self.begin(Activity.STEP)
        self._report_saved()

    def _report_saved(self) -> None:
        if not self._pauses or self._checkpoints is None:
            return
        durable = self._checkpoints.durable_step()
        for step in [step for step in self._pauses if durable is not None and step <= durable]:
            pause = self._pauses.pop(step)
            for listener in self._listeners:
                listener.checkpoint_saved(step, pause.seconds)

    @property
    def _saved_step(self) -> int | None:
        return None if self._saved == Position() else self._saved.step

    def _logged(self, record: LogRecord) -> None:
        self.notify(lambda listener: listener.logged(record))

    def _check(self, record: LogRecord, agreed: Agreed) -> None:
        ranks = self._group.regrouping
        check_together(record.step, agreed, replaced=ranks is not None and ranks.generation > 0)
        if self._group.first and self._slowest.add([own for *own, _ in agreed.own]):
            found = self._slowest.found
            self.notify(lambda listener: listener.slowest_changed(found))
        self._finite.check(record.gradient_norm, step=record.step, suspicious=agreed.suspicious, saved=self._saved_step)
