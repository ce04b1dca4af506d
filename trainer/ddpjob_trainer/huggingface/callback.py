"""Leads a Trainer: reports what it does, saves when it asks for it, and stops it when all ranks agree."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy, has_length

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.restoring import load_optimizer
from ddpjob_trainer.checkpointing.step_gate import Pause
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.huggingface.finite_steps import FiniteSteps
from ddpjob_trainer.huggingface.resuming import Pass, Resumed, state_of
from ddpjob_trainer.loop.evaluating import report
from ddpjob_trainer.loop.finite import OnNan
from ddpjob_trainer.loop.listening import attach
from ddpjob_trainer.observability.listener import Evaluation, Listener, LogRecord, Plan
from ddpjob_trainer.observability.metric_names import MOST_METRICS, named_numbers
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.stop import Stopped, StopRequests

ACCURACY: Final = "eval_accuracy"
"""Name of an evaluation's accuracy, from 0 to 1, if `compute_metrics` returns it as `accuracy`."""
_EVALUATION: Final = "eval_"
"""Before the names of all that an evaluation has found."""
_SPEEDS: Final = ("_runtime", "_per_second", "_time")
"""Ends of what transformers measures of itself."""

_log = logging.getLogger(__name__)


class DDPJobCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types where it is not installed
    """Notifies listeners of what a Trainer does, saves between its steps, and stops it when all ranks agree.

    Data with a length have epochs. Data without one are one epoch with the Trainer's maximum number of steps, in which
    the Trainer passes through them as often as needed.
    """

    def __init__(
        self,
        trainer: Trainer,
        *,
        requests: StopRequests,
        saves: Checkpoints | None,
        listeners: Sequence[Listener],
        resumed: Resumed | None,
        group: Group,
        save_every: int,
        on_nan: OnNan,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        trainer: that calls it.
        requests: to stop, already entered.
        saves: where to save; None does not save.
        listeners: are notified of everything.
        resumed: the checkpoint from which the training continues.
        group: the processes of the training.
        save_every: epochs between two checkpoints, if the Trainer's arguments do not say when to save.
        on_nan: what to do about a loss or gradient that is not finite.
        clock: seconds.
        """
        self._trainer = trainer
        self._requests = requests
        self._saves = saves
        self._listeners = listeners
        self._resumed = resumed
        self._group = group
        self._world_size = group.world_size
        self._finite: FiniteSteps | None = None
        self._save_every = save_every
        self._on_nan = on_nan
        self._clock = clock
        # The newest checkpoint, the last step that was to have one, and the last one that was looked at.
        self._saved_step = self._tried_step = self._done_step = resumed.position.step if resumed is not None else 0
        self._pauses = dict[int, Pause]()
        self._prepared = False
        # Due after the last step of an epoch, and made after what follows the epoch.
        self._save_is_due = False
        self._evaluates = False
        self._endless = False
        # Of the best evaluation whose step was saved.
        self._best = resumed.best if resumed is not None else None
        self._data = resumed.data if resumed is not None else Pass()
        if trainer.args.ignore_data_skip:
            self._data = Pass(self._data.number)
        self._steps_per_epoch = 0
        self._samples_per_step = 0
        self._consumed = 0
        # The time until the loss, which transformers reports to no callback, reveals a slow rank.
        self._remove_hook: Callable[[], None] = _nothing
        # When the last step ended, and when a batch was available for the next one.
        self._before = self._mark = self._got = clock()

    def data_start(self) -> Pass:
        """Where in data of unknown length the training starts."""
        return self._data

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        train_dataloader: DataLoader[Any],
        **_: object,
    ) -> None:
        """Restore what did not exist before, and report the plan."""
        self._endless = not has_length(train_dataloader)
        batches = 0 if self._endless else len(train_dataloader)
        self._steps_per_epoch = -(-batches // args.gradient_accumulation_steps) or state.max_steps
        own = args.train_batch_size // (self._world_size if args.accelerator_config.split_batches else 1)
        self._samples_per_step = own * args.gradient_accumulation_steps
        if self._resumed is not None:
            load_optimizer(self._trainer.optimizer, self._resumed.optimizer)
            self._trainer.lr_scheduler.load_state_dict(self._resumed.scheduler)
        self._remove_hook = self._trainer.model.register_forward_hook(self.loss_computed).remove
        optimizer = self._trainer.optimizer
        self._finite = FiniteSteps(
            self._trainer,
            self._group,
            self._on_nan,
            lambda step, what: self._notify(lambda listener: listener.not_finite(step, what)),
            step=state.global_step,
        )
        epochs = -(-state.max_steps // self._steps_per_epoch)
        attach(self._listeners, self._trainer.model, optimizer, self._group.exchange)
        plan = Plan(epochs, state.max_steps, state.global_step, resumed=self._resumed is not None)
        self._notify(lambda listener: listener.started(plan))

    def close(self) -> None:
        """Finish what is being saved, without the other ranks, which may be gone."""
        self._remove_hook()
        if self._saves is not None:
            self._saves.close()
            self._report_saved()

    def on_epoch_begin(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: object
    ) -> None:
        """Check whether to stop, and report the epoch."""
        self._stop_if(self._requests.agreed_now(state.global_step), state)
        done = state.global_step // self._steps_per_epoch
        left = min((done + 1) * self._steps_per_epoch, state.max_steps) - state.global_step
        self._notify(lambda listener: listener.epoch_started(done + 1, left))
        # The first batch of an epoch draws random numbers; the batches that a resume skips draw others.
        if (self._data.steps if self._endless else state.global_step % self._steps_per_epoch) == 0:
            self._restore_random_numbers()
        self._await_data()

    def on_step_begin(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_: object
    ) -> None:
        """The batches of a step are available."""
        self._restore_random_numbers()
        self._got = self._clock()
        self._begin(Activity.STEP)

    def on_substep_end(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_: object
    ) -> None:
        """A batch of several is done."""
        self._mark = self._clock()

    def batch_done(self, loss: torch.Tensor) -> None:
        """The gradients of a batch are computed."""
        if self._finite is not None:
            self._finite.batch_done(loss)

    def on_pre_optimizer_step(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: object
    ) -> None:
        """The parameters are about to change."""
        if self._finite is not None:
            self._finite.before_change(state.global_step)

    def loss_computed(self, model: torch.nn.Module, *_: object) -> None:
        """A hook of the model: its forward pass is done."""
        if model.training:
            seconds = self._clock() - self._mark
            self._notify(lambda listener: listener.loss_computed(seconds))

    def on_step_end(self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Count the step; what is due after it follows."""
        now, step = self._clock(), state.global_step
        self._data = Pass(self._data.number, self._data.steps + 1)
        self._consumed += self._samples_per_step * self._world_size
        seconds, data_seconds = now - self._before, self._got - self._before
        self._notify(lambda listener: listener.step_finished(step, self._samples_per_step, seconds, data_seconds))
        if self._finite is not None:
            self._finite.step_done(step)
        self._report_saved()
        if not self._prepared and self._saves is not None:
            self._prepared = True
            self._saves.prepare(state_of(self._trainer, self._data, self._world_size, self._best))
        if control.should_save and step % self._steps_per_epoch == 0:
            # What follows the epoch, such as an evaluation, would not run after a resume.
            self._save_is_due, control.should_save = True, False

    def step_done(self) -> None:
        """Check whether to stop, after everything that was due after a step."""
        state = self._trainer.state
        step = state.global_step
        # At the end of an epoch more may be due, which would not run after a resume; the next one begins with a check.
        ends = self._trainer.control.should_training_stop or step >= state.max_steps
        if step > self._done_step and step % self._steps_per_epoch and not ends:
            self._done_step = step
            self._stop_if(self._requests.agreed(step), state)
        self._await_data()

    def on_log(
        self,
        _args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        logs: Mapping[str, Any],
        **_: object,
    ) -> None:
        """Report the loss, which is the mean over all ranks and over the steps since the last time."""
        if "loss" not in logs:
            return
        norm, rate = logs.get("grad_norm"), logs.get("learning_rate")
        record = LogRecord(
            step=state.global_step,
            loss=float(logs["loss"]),
            learning_rate=float("nan") if rate is None else float(rate),
            gradient_norm=float("nan") if norm is None else float(norm),
            consumed=self._consumed,
        )
        self._notify(lambda listener: listener.logged(record))
        self._is_finite(state, due=False)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Ask for a save, after the evaluation if one follows: a resume then begins with the next epoch."""
        self._data = Pass(self._data.number + 1)
        epochs = self._data.number if self._endless else state.global_step // self._steps_per_epoch
        by_epoch = SaveStrategy(args.save_strategy) is SaveStrategy.NO and epochs % self._save_every == 0
        control.should_save = control.should_save or self._save_is_due or by_epoch
        self._save_is_due = False

    def on_prediction_step(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_: object
    ) -> None:
        """An evaluation is in progress."""
        if not self._evaluates:
            self._evaluates = True
            self._begin(Activity.EVALUATION)

    def on_evaluate(
        self,
        _args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        metrics: Mapping[str, float],
        **_: object,
    ) -> None:
        """Report what was found."""
        self._evaluates = False
        self._begin(Activity.STEP)
        found = _numbers(metrics)
        if found:
            report(Evaluation(state.global_step, found), self._notify)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: object) -> None:
        """Save the last step unless it is, and wait until it is on disk."""
        if state.global_step != self._tried_step:
            self.save()
        self._finish_saving()
        if state.best_global_step is not None:
            _log.info("best step: %d (%s %s)", state.best_global_step, args.metric_for_best_model, state.best_metric)
        if args.load_best_model_at_end:
            self._load_best()
        if state.global_step < state.max_steps:
            epochs, steps = -(-state.global_step // self._steps_per_epoch), state.global_step
            self._notify(lambda listener: listener.shortened(epochs, steps))

    def save(self) -> None:
        """Save a checkpoint of the current step, if there is a place for it, and its state is finite.

        Raises:
            NonFiniteError: the loss or the state is not finite, by the policy; on all ranks.
        """
        state = self._trainer.state
        self._tried_step = state.global_step
        if not self._is_finite(state, due=self._saves is not None) or self._saves is None:
            return
        self._begin(Activity.CHECKPOINT)
        before = self._clock()
        if state.best_global_step == state.global_step:
            self._best = state.global_step
        everything = state_of(self._trainer, self._data, self._world_size, self._best)
        pause = self._saves.save(everything, self._position(state), keep=self._best)
        pause.seconds = self._clock() - before
        self._pauses[state.global_step] = pause
        self._saved_step = state.global_step
        self._begin(Activity.STEP)
        self._report_saved()

    def _load_best(self) -> None:
        if self._saves is None or self._best is None:
            _log.warning("load_best_model_at_end: no step with an evaluation was saved, and the last model stays")
            return
        self._begin(Activity.CHECKPOINT)
        self._saves.load_best(self._trainer.model, step=self._best)
        self._begin(Activity.STEP)
        _log.info("loaded the model of step %d", self._best)

    def _is_finite(self, state: TrainerState, *, due: bool) -> bool:
        finite, saved = self._finite, self._saved_step or None
        return finite is None or finite.allows_save(state.global_step, saved, due=due)

    def _restore_random_numbers(self) -> None:
        if self._resumed is not None:
            randomness.restore(self._resumed.generators)
            self._resumed = None

    def _finish_saving(self) -> None:
        if self._saves is None or not self._saves.asynchronous:
            return
        self._begin(Activity.CHECKPOINT)
        self._saves.finish()
        self._begin(Activity.STEP)
        self._report_saved()

    def _report_saved(self) -> None:
        if not self._pauses or self._saves is None:
            return
        durable = self._saves.durable_step()
        for step in [step for step in self._pauses if durable is not None and step <= durable]:
            seconds = self._pauses.pop(step).seconds
            for listener in self._listeners:
                listener.checkpoint_saved(step, seconds)

    def _stop_if(self, agreed: bool, state: TrainerState) -> None:  # noqa: FBT001 what the ranks have agreed on
        if not agreed:
            return
        if state.global_step != self._tried_step:
            self.save()
        self._finish_saving()
        saved = "saved" if self._saves is not None and state.global_step == self._saved_step else "not saved"
        _log.info("stop requested: all ranks stop after step %d (%s)", state.global_step, saved)
        raise Stopped(state.global_step)

    def _position(self, state: TrainerState) -> Position:
        if self._endless:
            epoch, steps = self._data.number, self._data.steps
        else:
            epoch, steps = divmod(state.global_step, self._steps_per_epoch)
        return Position(epoch, steps * self._samples_per_step * self._world_size, state.global_step)

    def _await_data(self) -> None:
        self._begin(Activity.DATA)
        self._before = self._mark = self._clock()

    def _begin(self, activity: Activity) -> None:
        self._requests.activity_changed(activity)
        self._notify(lambda listener: listener.activity_changed(activity))

    def _notify(self, call: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            call(listener)


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    """What an evaluation has found, by name; those beyond what is shown are left out."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if not name.startswith(_EVALUATION) or name.endswith(_SPEEDS) or len(found) >= MOST_METRICS:
            continue
        with suppress(TypeError, ValueError):
            own = name.removeprefix(_EVALUATION)
            found |= named_numbers({own: value}, own)
    return found


def _nothing() -> None:
    """Stands for the removal of a hook that does not exist yet."""
