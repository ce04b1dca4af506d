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
from ddpjob_trainer.data.sources import check_indices, known_source_of
from ddpjob_trainer.loop.before import Buffers
from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.evaluating import Evaluate, Evaluating
from ddpjob_trainer.loop.finite import Finite
from ddpjob_trainer.loop.global_batch import GlobalBatch
from ddpjob_trainer.loop.listening import ListenerStates, attach
from ddpjob_trainer.loop.optimization import Loss, Optimizing
from ddpjob_trainer.loop.planning import planned_epochs, planned_steps
from ddpjob_trainer.loop.result import Result
from ddpjob_trainer.loop.schedule import MakeScheduler, Schedule, is_function
from ddpjob_trainer.loop.settings import Interval, Settings
from ddpjob_trainer.loop.survival import Survival, surviving
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
        scheduler: LRScheduler | MakeScheduler | None = None,
        evaluate: Evaluate | None = None,
        collate_fn: Collate | None = None,
        checkpoints: Checkpoints | None = None,
        listeners: Sequence[Listener] = (),
        survival: Survival | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        group: the processes of the training.
        model: on the group's device.
        optimizer: of the model's parameters.
        loss: of a batch: the mean over its samples, or a sum with its weight.
        dataset: with a length; the same on all ranks, each reads its own part. Or a DataLoader, as for one process.
        settings: how to proceed.
        scheduler: of the optimizer; advanced after every step, or as the settings say. Or a function that makes it,
            given the optimizer and the number of steps.
        evaluate: measures the model, as often as the settings say.
        collate_fn: makes a batch of samples, in the DataLoader; None is torch's own.
        checkpoints: where to save and resume; None does neither.
        listeners: are notified of everything.
        survival: of lost ranks; None ends with them.
        clock: seconds.

        Raises:
            MisuseError: the settings or the scheduler need evaluations without `evaluate`, or disagree on whether a
                larger value is better; or two listeners have a state of the same name.
        """
        self._group = group
        self._module = model
        self._optimizer = optimizer
        self._settings = settings
        self._listeners = listeners
        self._listener_states = ListenerStates(listeners)
        self._survival = survival
        # The step that changes parameters now, or has done so.
        self._changed = 0
        self._before = None if survival is None or not list(model.buffers()) else Buffers([model])
        self._loading = self._source(dataset, collate_fn)
        self._batch = GlobalBatch(settings.optimization, group)
        self._scheduler = self._made(scheduler)
        by_step = settings.scheduler_interval is Interval.STEP
        advanced: Any = None if isinstance(scheduler, ReduceLROnPlateau) else self._scheduler
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
            settings=settings,
            scheduler=self._scheduler,
            autocast=lambda: settings.optimization.autocast(group.device),
        )
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
            best_step=lambda: self._evaluating.kept_step,
            survival=survival,
            clock=clock,
        )

    @property
    def position(self) -> Position:
        """How far the training has come."""
        return self._course.position

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of a whole epoch."""
        return self._loading.steps(0, self._batch.size) or 0

    def run(self) -> Result:
        """Train until all epochs or steps are done, or until SIGTERM has reached any of the ranks.

        Returns:
            What the training has done, those steps included that were done before a resume.

        Raises:
            Stopped: all ranks were asked to stop and have saved their last step; a resume continues with the next one.
            SaveError: a checkpoint could not be written; with asynchronous ones on rank 0 alone after the step in which
                it failed, whose end the others notice.
            MisfitError: the checkpoint to resume from belongs to another model.
            MisuseError: no sample would be read, the ranks' data sets differ in length, a parameter that was
                unfrozen during the training would differ per rank, or `Settings.metric` names nothing that `evaluate`
                gives.
            NonFiniteError: the loss, a gradient or the state is not finite, by `Settings.on_nan`; on all ranks.
            RankLostError: a rank was replaced: another loop goes on, once this one was left by `leave`.
        """
        with self._course.running(), surviving(self._survival):
            self._loading.check()
            self._attach()
            plan = self._resume()
            self._start(plan)
            # After resuming: the ranks' different random numbers are for what they compute, not for the weights.
            model = self._optimizing.distributed()
            self._optimizing.own_time = self._course.own_time
            self._course.own_time.attach(model)
            if self.position.consumed > 0 and not self._epoch_is_read:
                # An evaluation may have been due when a stop came.
                self._finish_step()
            elif self._course.epoch_ended:
                self._follow_epoch()
            while not self._is_over:
                self._train_epoch(model)
                if self._epoch_is_read:
                    self._finish_epoch()
            if self._survival is not None and self._survival.generation:
                # The last checkpoint may have been lost with the rank that wrote it.
                self._course.save_rest()
            self._course.finish_saving()
        return self._result()

    def leave(self) -> None:
        """After a `RankLostError`: keep what this rank has, and let go of the model and of the group."""
        if self._before is not None:
            self._before.restore(self.position.step)
        self._course.keep(torn=self._changed > self.position.step)
        self._optimizing.leave()

    def _attach(self) -> None:
        survival = self._survival
        share, known = survival is None or not survival.finds, survival is not None and survival.started
        attach(self._listeners, self._module, self._optimizer, self._group.exchange, share=share, known=known)

    def _start(self, plan: Plan) -> None:
        if self._survival is not None:
            if self._survival.started:
                return
            self._survival.started = True
        self._course.notify(lambda listener: listener.started(plan))

    def _source(self, dataset: Dataset[Any] | DataLoader[Any], collate_fn: Collate | None) -> Source:
        settings = self._settings
        if isinstance(dataset, DataLoader):
            if collate_fn is not None or settings.drop_last or settings.data_workers or not settings.shuffle:
                raise MisuseError(
                    "a DataLoader has collate_fn, drop_last, workers and shuffle of its own: give them to it alone"
                )
            return known_source_of(dataset, self._group, settings.seed, settings.batch_size)
        check_indices(dataset)
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

    def _made(self, scheduler: LRScheduler | MakeScheduler | None) -> Any:  # noqa: ANN401 or what makes it
        if not is_function(scheduler):
            return scheduler
        if self._settings.scheduler_interval is Interval.EPOCH:
            raise MisuseError(
                "a scheduler that is a function of the number of steps is advanced after every step: remove "
                "Settings.scheduler_interval, or pass the scheduler itself"
            )
        make: Any = scheduler
        # Of data without samples, which are refused when the training begins, no scheduler could be made.
        return Schedule(make, self._optimizer, max(self._planned(Position()), 1))

    def _planned(self, done: Position) -> int:
        settings = self._settings
        size = self._batch.size
        return planned_steps(self._loading, done, size, epochs=settings.total_epochs, max_steps=settings.max_steps)

    def _resume(self) -> Plan:
        resumed = self._course.resume(self._settings.seed)
        done, settings = self.position, self._settings
        self._batch.begin(self._loading, [self._module])
        total = self._planned(done)
        if isinstance(self._scheduler, Schedule):
            self._scheduler.begin(total, done.step)
        epochs = settings.total_epochs
        if self._evaluating.stop_is_due:
            total, epochs = done.step, done.epoch + (done.consumed > 0)
        elif epochs is None or settings.max_steps is not None:
            needed = planned_epochs(self._loading, done, self._batch.size, total_steps=total)
            epochs = needed if epochs is None else min(epochs, needed)
        self._course.total_steps = total
        return Plan(epochs, total, done.step, resumed=resumed)

    @property
    def _is_over(self) -> bool:
        if self._evaluating.stop_is_due:
            return True
        # What follows an epoch may not have been done when a stop came.
        return self._settings.done(self.position.epoch, self.position.step) and not self._epoch_is_read

    @property
    def _epoch_is_read(self) -> bool:
        """Whether all batches of the epoch are read, but what follows an epoch is not done."""
        consumed = self.position.consumed
        return consumed > 0 and self._loading.steps(consumed, self._batch.size) == 0

    def _train_epoch(self, model: DistributedDataParallel) -> None:
        course = self._course
        course.stop_if_agreed_now()
        start = self.position
        steps = self._loading.steps(start.consumed, self._batch.size)
        course.notify(lambda listener: listener.epoch_started(start.epoch + 1, steps or 0))
        model.train()
        self._begin_step()
        for batch, part in self._loading.batches(start, self._batch.size):
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
            course.finish_log_step()
            step = self._changed = self.position.step + 1
            record = self._optimizing.step(self._finite, measure=course.is_log_step(step), scale=part.scale)
            course.step_finished(Position(start.epoch, part.consumed, step), part.total, record)
            # At the end of the epoch the position is the beginning of the next one.
            if not part.ends_epoch:
                if self._finish_step():
                    return
                course.stop_if_agreed()
            self._begin_step()

    def _begin_step(self) -> None:
        if self._before is not None:
            self._before.remember(self.position.step)
        self._course.begin_step()

    def _finish_step(self) -> bool:
        """Do what follows a step within an epoch; returns whether it was the last one of the training."""
        course, evaluating, step = self._course, self._evaluating, self.position.step
        done = self._settings.done(self.position.epoch, step)
        evaluated = (
            evaluating.possible
            and evaluating.history.last_step != step
            and (done or self._is_every(self._settings.evaluate_every_steps))
        )
        if done or evaluated:
            course.finish_log_step()
        if evaluated:
            # It may last longer than a stop may take; a resume then begins with it.
            course.stop_if_agreed_now()
            self._evaluate()
        over = done or evaluating.stop_is_due
        if evaluated and (over or self._is_every(self._settings.save_every_steps) or evaluating.kept_step == step):
            course.save()
        elif over or self._is_every(self._settings.save_every_steps):
            course.save_rest()
        return over

    def _finish_epoch(self) -> None:
        course = self._course
        course.begin(Activity.STEP)
        course.finish_log_step()
        epoch, step = self.position.epoch + 1, self.position.step
        if self._evaluates_after(epoch):
            # An evaluation may last longer than a stop may take. A resume begins with the evaluation that is still due.
            course.stop_if_agreed_now()
        course.epoch_ended = True
        course.position = Position(epoch, 0, step)
        if self._by_epoch is not None:
            self._by_epoch.step()
        self._follow_epoch()

    def _follow_epoch(self) -> None:
        """Do what follows an epoch that is counted."""
        course, epoch, step = self._course, self.position.epoch, self.position.step
        due = self._is_due_after(epoch)
        if self._evaluates_after(epoch):
            self._evaluate()
            due = due or self._evaluating.stop_is_due or self._evaluating.kept_step == step
        if due or self._is_every(self._settings.save_every_steps):
            course.save()
        course.epoch_ended = False

    def _is_due_after(self, epoch: int) -> bool:
        """Whether this number of epochs is followed by a checkpoint, and by an evaluation unless steps decide."""
        settings = self._settings
        return settings.done(epoch, self.position.step) or epoch % settings.save_every == 0

    def _evaluates_after(self, epoch: int) -> bool:
        settings = self._settings
        if not self._evaluating.possible:
            return False
        if settings.evaluate_every_steps is None:
            return self._is_due_after(epoch)
        return settings.done(epoch, self.position.step) or self._is_every(self._settings.evaluate_every_steps)

    def _evaluate(self) -> None:
        self._evaluating.run(self._course)
        if self._evaluating.stop_is_due and not self._settings.done(self.position.epoch, self.position.step):
            self._evaluating.say_early_end(self._course)

    def _is_every(self, steps: int | None) -> bool:
        return steps is not None and self.position.step % steps == 0

    def _result(self) -> Result:
        position, history = self.position, self._evaluating.history
        early = not self._settings.done(position.epoch, position.step)
        return Result(
            steps=position.step,
            epochs=position.epoch,
            samples=self._course.samples,
            metrics={} if history.last is None else history.last.metrics,
            best_metrics={} if history.best is None else history.best.metrics,
            best_step=None if history.best is None else history.best.step,
            resumed_from=self._course.resumed_from,
            ended_early=self._evaluating.why_early if early else None,
        )

    def _state(self) -> TrainingState:
        return TrainingState(
            self._module,
            self._optimizer,
            self._scheduler,
            self._optimizing.scaler,
            self._evaluating.history if self._evaluating.possible else None,
            others=self._listener_states,
            buckets=self._optimizing.buckets,
            weights=self._weights,
            batch=self._batch,
            owners=self._optimizing.owners,
        )
