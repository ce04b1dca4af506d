"""The training loop, readable from top to bottom."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.data.loading import Collate, Loading
from ddpjob_trainer.data.moving import to_device
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.source import Source
from ddpjob_trainer.data.sources import known_source_of
from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.evaluating import Evaluate, Evaluating
from ddpjob_trainer.loop.finite import Finite
from ddpjob_trainer.loop.optimization import Loss, Optimizing
from ddpjob_trainer.loop.planning import planned_steps
from ddpjob_trainer.loop.settings import Interval, Settings
from ddpjob_trainer.loop.weights import Weights
from ddpjob_trainer.observability.listener import Listener, Plan
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group


class TrainingLoop:
    """Trains a model with DistributedDataParallel, saves, and resumes from the newest checkpoint."""

    def __init__(
        self,
        *,
        group: Group,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        dataset: Dataset[Any] | DataLoader[Any],
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
        loss: of a batch: the mean over its samples, or a sum with its weight.
        dataset: with a length; the same on all ranks, each reads its own part. Or a DataLoader, as for one process.
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
        self._group = group
        self._module = model
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._settings = settings
        by_step = settings.scheduler_interval is Interval.STEP
        advanced = None if isinstance(scheduler, ReduceLROnPlateau) else scheduler
        self._by_epoch = None if by_step else advanced
        self._weights = Weights(group.exchange, group.world_size)
        self._optimizing = Optimizing(
            model,
            optimizer,
            loss,
            scheduler=advanced if by_step else None,
            device=group.device,
            how=settings.optimization,
            weights=self._weights,
        )
        self._evaluating = Evaluating(
            group,
            model,
            evaluate,
            early_stopping=settings.early_stopping,
            scheduler=scheduler,
            autocast=self._optimizing.autocast,
        )
        self._loading = self._source(dataset, collate_fn)
        self._finite = Finite(
            group.exchange,
            model,
            optimizer,
            policy=settings.on_nan,
            rank=group.rank,
            scaled=self._optimizing.scaler is not None,
            found=lambda step, what: self._course.notify(lambda listener: listener.not_finite(step, what)),
        )
        self._course = Course(
            group,
            state=self._state,
            finite=self._finite,
            checkpoints=checkpoints,
            listeners=listeners,
            log_every=settings.log_every,
            best_step=lambda: self._evaluating.best_step,
            clock=clock,
        )

    @property
    def position(self) -> Position:
        """How far the training has come."""
        return self._course.position

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of a whole epoch."""
        return self._loading.steps(0, self._settings.optimization.accumulate) or 0

    def run(self) -> None:
        """Train until all epochs are done, or until SIGTERM has reached any of the ranks.

        Raises:
            Stopped: all ranks were asked to stop and have saved their last step; a resume continues with the next one.
            SaveError: a checkpoint could not be written; with asynchronous ones on rank 0 alone after the step in which
                it failed, whose end the others notice.
            MisfitError: the checkpoint to resume from belongs to another model.
            MisuseError: no sample would be read, the ranks' data sets differ in length, or a parameter that was
                unfrozen during the training would differ per rank.
            NonFiniteError: the loss, a gradient or the state is not finite, by `Settings.on_nan`; on all ranks.
        """
        with self._course.running():
            self._loading.check()
            plan = self._resume()
            self._course.notify(lambda listener: listener.started(plan))
            # After resuming: the ranks' different random numbers are for what they compute, not for the weights.
            model = self._optimizing.distributed()
            while self.position.epoch < self._last_epoch:
                self._train_epoch(model)
                self._finish_epoch()

    def _source(self, dataset: Dataset[Any] | DataLoader[Any], collate_fn: Collate | None) -> Source:
        settings = self._settings
        if isinstance(dataset, DataLoader):
            if collate_fn is not None or settings.drop_last or settings.data_workers or not settings.shuffle:
                raise MisuseError(
                    "a DataLoader has collate_fn, drop_last, workers and shuffle of its own: give them to it alone"
                )
            return known_source_of(dataset, self._group, settings.seed, settings.batch_size)
        return Loading(
            dataset,
            self._group,
            batch_size=settings.batch_size,
            seed=settings.seed,
            drop_last=settings.drop_last,
            workers=settings.data_workers,
            collate_fn=collate_fn,
            shuffle=settings.shuffle,
        )

    def _resume(self) -> Plan:
        resumed = self._course.resume(self._settings.seed)
        done, accumulate = self.position, self._settings.optimization.accumulate
        total = planned_steps(self._loading, done, accumulate, epochs=self._last_epoch, max_steps=None)
        self._course.total_steps = total
        return Plan(self._last_epoch, total, done.step, resumed=resumed)

    @property
    def _last_epoch(self) -> int:
        """Number of epochs after which the training ends, as far as is known now."""
        return self.position.epoch if self._evaluating.stop_is_due else self._settings.total_epochs

    def _train_epoch(self, model: DistributedDataParallel) -> None:
        course = self._course
        course.stop_if_agreed_now()
        start = self.position
        accumulate = self._settings.optimization.accumulate
        steps = self._loading.steps(start.consumed, accumulate)
        course.notify(lambda listener: listener.epoch_started(start.epoch + 1, steps or 0))
        model.train()
        course.begin_step()
        for batch, part in self._loading.batches(start, accumulate):
            course.batch_arrived(part.samples)
            self._optimizing.add(
                model,
                to_device(batch, self._group.device),
                last=part.last,
                weight=part.weight,
                computed=course.loss_computed,
            )
            if not part.last:
                course.await_batch()
                continue
            step = self.position.step + 1
            record = self._optimizing.step(self._finite, measure=course.is_log_step(step), scale=part.scale)
            course.step_finished(Position(start.epoch, part.consumed, step), part.total, record)
            # At the end of the epoch the position is the beginning of the next one.
            if not part.ends_epoch:
                if self._is_save_step():
                    course.save()
                course.stop_if_agreed()
            course.begin_step()

    def _finish_epoch(self) -> None:
        course = self._course
        course.begin(Activity.STEP)
        course.finish_log_step()
        epoch = self.position.epoch + 1
        due = epoch % self._settings.save_every == 0 or epoch == self._settings.total_epochs
        if due and self._evaluating.possible:
            # An evaluation may last longer than a stop may take. A resume begins with the evaluation that is still due.
            course.stop_if_agreed_now()
        course.position = Position(epoch, 0, self.position.step)
        if self._by_epoch is not None:
            self._by_epoch.step()
        if due:
            self._evaluating.run(course)
            if self._evaluating.stop_is_due and epoch < self._settings.total_epochs:
                self._evaluating.say_early_end(course)
        if due or self._is_save_step():
            course.save()

    def _is_save_step(self) -> bool:
        every = self._settings.save_every_steps
        return every is not None and self.position.step % every == 0

    def _state(self) -> TrainingState:
        return TrainingState(
            self._module,
            self._optimizer,
            self._scheduler,
            self._optimizing.scaler,
            self._evaluating.early_stop,
            buckets=self._optimizing.buckets,
            weights=self._weights,
        )
