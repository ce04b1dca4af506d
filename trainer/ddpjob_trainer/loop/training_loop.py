"""The training loop, readable from top to bottom."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import Dataset

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.checkpointing.step_gate import Pause
from ddpjob_trainer.data.loading import Collate, Loading, to_device
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Share
from ddpjob_trainer.loop.early_stopping import EarlyStop, EarlyStopping, Mode
from ddpjob_trainer.loop.optimization import Loss, Optimizing
from ddpjob_trainer.loop.settings import Interval, Settings
from ddpjob_trainer.observability.listener import Listener, LogRecord, Plan
from ddpjob_trainer.observability.log_steps import LogSteps
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.stop import Stopped, StopRequests

Evaluate = Callable[[nn.Module], float]
"""Given the model in evaluation mode, its accuracy from 0 to 1, or with `Mode.MIN` a loss; called on all ranks.

All ranks use the value of rank 0, whatever the others return.
"""

_log = logging.getLogger(__name__)


class TrainingLoop:
    """Trains a model with DistributedDataParallel, saves, and resumes from the newest checkpoint."""

    def __init__(
        self,
        *,
        group: Group,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        dataset: Dataset[Any],
        settings: Settings,
        scheduler: LRScheduler | None = None,
        evaluate: Evaluate | None = None,
        collate_fn: Collate | None = None,
        checkpoints: Checkpoints | None = None,
        listeners: Sequence[Listener] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        group: the processes of the training.
        model: on the group's device.
        optimizer: of the model's parameters.
        loss: of a batch, the mean over its samples.
        dataset: with a length; the same on all ranks, each reads its own part.
        settings: how to proceed.
        scheduler: of the optimizer; advanced after every step, or as the settings say.
        evaluate: measures the model whenever a checkpoint at the end of an epoch is due.
        collate_fn: makes a batch of samples, in the DataLoader; None is torch's own.
        checkpoints: where to save and resume; None does neither.
        listeners: are notified of everything.
        clock: seconds.

        Raises:
            MisuseError: the settings or the scheduler need evaluations without `evaluate`, or disagree on whether a
                larger value is better.
        """
        if evaluate is None:
            if settings.early_stopping is not None:
                raise MisuseError("early_stopping needs evaluations: pass evaluate=..., or remove early_stopping")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise MisuseError("ReduceLROnPlateau needs evaluations: pass evaluate=...")
        self._measures_loss = _measures_loss(scheduler, settings.early_stopping)
        self._group = group
        self._module = model
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._plateau = scheduler if isinstance(scheduler, ReduceLROnPlateau) else None
        by_step = settings.scheduler_interval is Interval.STEP
        self._by_epoch = None if by_step or self._plateau is not None else scheduler
        self._optimizing = Optimizing(
            model,
            optimizer,
            loss,
            scheduler=scheduler if by_step and self._plateau is None else None,
            device=group.device,
            how=settings.optimization,
        )
        self._early_stop = None if settings.early_stopping is None else EarlyStop(settings.early_stopping)
        self._settings = settings
        self._evaluate = evaluate
        self._checkpoints = checkpoints
        self._listeners = listeners
        self._clock = clock
        self._log_steps = LogSteps(group.exchange, self._logged)
        self._loading = Loading(
            dataset,
            group,
            batch_size=settings.batch_size,
            seed=settings.seed,
            drop_last=settings.drop_last,
            workers=settings.data_workers,
            collate_fn=collate_fn,
        )
        self._requests = StopRequests(group, clock=clock)
        self._position = Position()
        # What a resume would find; at the beginning nothing is worth saving.
        self._saved = Position()
        self._pauses = dict[int, Pause]()
        self._prepared = False
        self._total_steps = 0
        self._consumed = 0

    @property
    def position(self) -> Position:
        """How far the training has come."""
        return self._position

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of a whole epoch."""
        return self._steps(self._loading.share())

    def run(self) -> None:
        """Train until all epochs are done, or until SIGTERM has reached any of the ranks.

        Raises:
            Stopped: all ranks were asked to stop and have saved their last step; a resume continues with the next one.
            SaveError: a checkpoint could not be written; with asynchronous ones on rank 0 alone after the step in which
                it failed, whose end the others notice.
            MisfitError: the checkpoint to resume from belongs to another model.
            MisuseError: no sample would be read, or the ranks' data sets differ in length.
        """
        try:
            with self._requests:
                self._loading.check()
                plan = self._resume()
                self._notify(lambda listener: listener.started(plan))
                # After resuming: the ranks' different random numbers are for what they compute, not for the weights.
                model = self._optimizing.distributed()
                while self._position.epoch < self._last_epoch:
                    self._train_epoch(model)
                    self._finish_epoch()
                self._finish_saving()
                self._notify(lambda listener: listener.finished())
        except Stopped as stopped:
            step = stopped.step
            self._notify(lambda listener: listener.stopped(step))
            raise
        except BaseException:
            self._log_steps.finish_if_soon()
            if self._checkpoints is not None:
                self._checkpoints.close()
                self._report_saved()
            self._notify(lambda listener: listener.failed())
            raise

    def _resume(self) -> Plan:
        randomness.seed_everything(self._settings.seed + self._group.rank)
        found = self._checkpoints.resume(self._state()) if self._checkpoints is not None else None
        if found is not None:
            self._position = self._saved = found
            _log.info("resumed in epoch %d after step %d", found.epoch + 1, found.step)
        epochs_left = self._last_epoch - self._position.epoch
        steps_left = 0
        if epochs_left > 0:
            rest = self._steps(self._loading.share(self._position.consumed))
            steps_left = rest + (epochs_left - 1) * self.steps_per_epoch
        self._total_steps = self._position.step + steps_left
        return Plan(self._last_epoch, self._total_steps, self._position.step, resumed=found is not None)

    @property
    def _last_epoch(self) -> int:
        """Number of epochs after which the training ends, as far as is known now."""
        ended = self._early_stop is not None and self._early_stop.due
        return self._position.epoch if ended else self._settings.total_epochs

    def _steps(self, share: Share) -> int:
        return -(-share.steps // self._settings.optimization.accumulate)

    def _train_epoch(self, model: DistributedDataParallel) -> None:
        self._stop_if(self._requests.agreed_now(self._position.step))
        start = self._position
        share = self._loading.share(start.consumed)
        self._notify(lambda listener: listener.epoch_started(start.epoch + 1, self._steps(share)))
        model.train()
        self._begin(Activity.DATA)
        most = self._settings.optimization.accumulate
        before = mark = self._clock()
        data_seconds, samples = 0.0, 0
        for index, batch in enumerate(self._loading.batches(start)):
            data_seconds += self._clock() - mark
            samples += share.samples(index)
            self._begin(Activity.STEP)
            part = index % most
            begin = index - part
            parts = min(most, share.steps - begin)
            self._optimizing.add(
                model,
                to_device(batch, self._group.device),
                last=part + 1 == parts,
                weight=share.weight(index, begin, parts),
                computed=self._loss_reporter(mark),
            )
            if part + 1 < parts:
                self._begin(Activity.DATA)
                mark = self._clock()
                continue
            measure = self._is_log_step(self._position.step + 1)
            record = self._optimizing.step(measure=measure, scale=share.scale(begin, parts))
            consumed = share.consumed_after(index + 1)
            first = self._consumed == 0
            self._consumed += consumed - self._position.consumed
            self._position = Position(start.epoch, consumed, self._position.step + 1)
            now = self._clock()
            step, seconds = self._position.step, now - before
            for listener in self._listeners:
                listener.step_finished(step, samples, seconds, data_seconds)
            if record is not None:
                loss, norm, rate = record
                self._log_steps.begin(loss, norm, step=step, learning_rate=rate, consumed=self._consumed)
                if first:
                    # Immediately, whatever the next step waits for: training has begun.
                    self._log_steps.finish()
            self._report_saved()
            if not self._prepared:
                self._prepare_saving()
            # At the end of the epoch the position is the beginning of the next one.
            if index + 1 < share.steps:
                if self._is_save_step():
                    self._save()
                self._stop_if(self._requests.agreed(step))
            self._begin(Activity.DATA)
            before = mark = self._clock()
            data_seconds, samples = 0.0, 0

    def _loss_reporter(self, begun: float) -> Callable[[], None]:
        def report() -> None:
            local = self._clock() - begun
            for listener in self._listeners:
                listener.loss_computed(local)
            self._log_steps.finish()

        return report

    def _finish_epoch(self) -> None:
        self._begin(Activity.STEP)
        self._log_steps.finish()
        epoch = self._position.epoch + 1
        due = epoch % self._settings.save_every == 0 or epoch == self._settings.total_epochs
        if due and self._evaluate is not None:
            # An evaluation may last longer than a stop may take. A resume begins with the evaluation that is still due.
            self._stop_if(self._requests.agreed_now(self._position.step))
        self._position = Position(epoch, 0, self._position.step)
        if self._by_epoch is not None:
            self._by_epoch.step()
        if due and self._evaluate is not None:
            self._apply(self._evaluated(self._evaluate))
        if due or self._is_save_step():
            self._save()

    def _evaluated(self, evaluate: Evaluate) -> float:
        self._begin(Activity.EVALUATION)
        self._module.eval()
        with torch.no_grad():
            value = evaluate(self._module)
        self._begin(Activity.STEP)
        try:
            # The other ranks need not measure anything.
            own, wrong = float(value) if self._group.first else math.nan, False
        except (TypeError, ValueError):
            own, wrong = math.nan, True
        # Ranks that disagreed on the end, or on a learning rate, would wait for each other or train different models.
        agreed, failed = self._group.exchange.first(own, wrong)
        if failed:
            # What the function returned on other ranks is irrelevant.
            found = f", not {type(value).__name__}" if self._group.first else ""
            raise TypeError(f"evaluate must return a number on rank 0{found}")
        return agreed

    def _apply(self, value: float) -> None:
        stop = self._early_stop
        if stop is not None:
            stop.add(value, self._position.step)
        no_improvement_for = None if stop is None else stop.no_improvement_for
        if not self._measures_loss:
            self._notify(lambda listener: listener.evaluated(value, no_improvement_for))
        if self._plateau is not None:
            self._plateau.step(value)
        if stop is not None and stop.due and self._position.epoch < self._settings.total_epochs:
            epoch, step = self._position.epoch, self._position.step
            best = "" if stop.best_step is None else f"; the best was after step {stop.best_step}"
            _log.info("early stop after epoch %d: no improvement in %d evaluations%s", epoch, no_improvement_for, best)
            self._total_steps = step
            self._notify(lambda listener: listener.shortened(epoch, step))

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        # If this process dies right after the save, no other process reports the step.
        self._log_steps.finish()
        self._begin(Activity.CHECKPOINT)
        best = None if self._early_stop is None else self._early_stop.best_step
        pause = self._checkpoints.save(self._state(), self._position, during_next_step=True, keep=best)
        self._pauses[self._position.step] = pause
        self._saved = self._position
        self._begin(Activity.STEP)
        self._report_saved()

    def _prepare_saving(self) -> None:
        self._prepared = True
        if self._checkpoints is not None:
            self._checkpoints.prepare(self._state())

    def _finish_saving(self) -> None:
        if self._checkpoints is None or not self._checkpoints.asynchronous:
            return
        self._begin(Activity.CHECKPOINT)
        self._checkpoints.finish()
        self._begin(Activity.STEP)
        self._report_saved()

    def _report_saved(self) -> None:
        if not self._pauses or self._checkpoints is None:
            return
        durable = self._checkpoints.durable_step()
        for step in [step for step in self._pauses if durable is not None and step <= durable]:
            pause = self._pauses.pop(step)
            for listener in self._listeners:
                listener.checkpoint_saved(step, pause.seconds)

    def _stop_if(self, agreed: bool) -> None:  # noqa: FBT001 what the ranks have agreed on
        if not agreed:
            return
        self._log_steps.finish()
        if self._position != self._saved:
            self._save()
        self._finish_saving()
        saved = "saved" if self._checkpoints is not None else "not saved"
        _log.info("stop requested: all ranks stop after step %d (%s)", self._position.step, saved)
        raise Stopped(self._position.step)

    def _logged(self, record: LogRecord) -> None:
        self._notify(lambda listener: listener.logged(record))

    def _is_log_step(self, step: int) -> bool:
        # The first one shows immediately that training has begun, the last one remains on display.
        return self._consumed == 0 or step == self._total_steps or step % self._settings.log_every == 0

    def _is_save_step(self) -> bool:
        every = self._settings.save_every_steps
        return every is not None and self._position.step % every == 0

    def _state(self) -> TrainingState:
        return TrainingState(self._module, self._optimizer, self._scheduler, self._optimizing.scaler, self._early_stop)

    def _begin(self, activity: Activity) -> None:
        self._requests.activity_changed(activity)
        for listener in self._listeners:
            listener.activity_changed(activity)

    def _notify(self, call: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            call(listener)


def _measures_loss(scheduler: LRScheduler | None, early_stopping: EarlyStopping | None) -> bool:
    """Whether smaller evaluations are better.

    Raises:
        MisuseError: the two disagree.
    """
    modes = {} if early_stopping is None else {f"early_stopping has mode {early_stopping.mode}": early_stopping.mode}
    if isinstance(scheduler, ReduceLROnPlateau):
        modes[f"ReduceLROnPlateau has mode {scheduler.mode}"] = Mode(scheduler.mode)
    if len(set(modes.values())) > 1:
        raise MisuseError(f"{' and '.join(modes)}: both use the same evaluations and must agree on which is better")
    return Mode.MIN in modes.values()
