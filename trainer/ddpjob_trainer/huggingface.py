"""transformers' Trainer with this library's progress, metrics, checkpoints and agreed stop.

The Trainer's own checkpoints are pickles, written in place by every process; those of this library are neither, and
need a volume only on rank 0's node. So the Trainer only trains, and a callback does everything else.
"""

import dataclasses
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_model
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.observability.listener import Listener, LogRecord, Plan
from ddpjob_trainer.observability.log import EpochLines
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.stop import Stopped, StopRequests

ACCURACY: Final = "eval_accuracy"
"""Name of an evaluation's accuracy, from 0 to 1, if `compute_metrics` returns it as `accuracy`."""
# The names that transformers looks for in a folder to resume from.
_WEIGHTS: Final = "model.safetensors"
_STATE: Final = "trainer_state.json"

_log = logging.getLogger(__name__)

with warnings.catch_warnings(action="ignore", category=FutureWarning):
    # accelerate imports it when it wraps a model; some versions of torch emit warnings about themselves.
    import torch.distributed.algorithms.ddp_comm_hooks


def train(
    trainer: Trainer,
    group: Group,
    *,
    save_every: int = 1,
    checkpoint_dir: str | None = None,
) -> None:
    """Call `trainer.train()` as a DDPJob: with progress, checkpoints, resume, and an agreed stop on SIGTERM.

    Checkpoints have the same content as those of `ddpjob_trainer.train`, and the Trainer's state. Its arguments should
    have `save_strategy="no"`: what it saves by itself is not read here.

    Args:
        trainer: not trained yet, created within `process_group`.
        group: the processes of the training.
        save_every: epochs between two checkpoints; the last epoch has one in any case.
        checkpoint_dir: folder for the checkpoints of jobs; None uses the operator's, and saves nothing without one.

    Raises:
        Stopped: all ranks were asked to stop and have saved their last step; a resume continues with the next one.
        SaveError: a checkpoint could not be written.
        MisfitError: the checkpoint to resume from belongs to another model.
        MisuseError: it was saved by another number of processes.
        ValueError: save_every is below 1.
    """
    if save_every < 1:
        raise ValueError(f"save_every must be at least 1, not {save_every}")
    saves = Checkpoints.of_job(group, checkpoint_dir)
    listeners = (EpochLines(group, trainer.args.per_device_train_batch_size), Telemetry(group))
    resumed = _resume(trainer, saves, group.world_size) if saves is not None else None
    try:
        with StopRequests(group) as requests, tempfile.TemporaryDirectory() as folder:
            if resumed is not None:
                resumed.write(trainer.model, Path(folder))
            callback = DDPJobCallback(
                trainer,
                requests=requests,
                saves=saves,
                listeners=listeners,
                resumed=resumed,
                world_size=group.world_size,
                save_every=save_every,
            )
            trainer.add_callback(callback)
            # The time until the loss, which transformers reports to no callback, reveals a slow rank.
            hook = trainer.model.register_forward_hook(callback.loss_computed)
            try:
                trainer.train(resume_from_checkpoint=folder if resumed is not None else None)
            finally:
                # An evaluation or another training afterwards is up to the program.
                hook.remove()
                trainer.remove_callback(callback)
    except Stopped as stopped:
        step = stopped.step
        _notify(listeners, lambda listener: listener.stopped(step))
        raise
    except BaseException:
        _notify(listeners, lambda listener: listener.failed())
        raise
    _notify(listeners, lambda listener: listener.finished())


class _Kept:
    """Keeps a state until its owner exists: the Trainer creates optimizer and scheduler when it starts."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict


@dataclasses.dataclass(frozen=True, slots=True)
class _Resumed:
    """A checkpoint whose model has been loaded."""

    position: Position
    optimizer: Mapping[str, Any]
    scheduler: Mapping[str, Any]
    trainer_state: str
    """transformers' TrainerState as JSON."""
    generators: bytes
    """This rank's random numbers."""

    def write(self, model: torch.nn.Module, folder: Path) -> None:
        """Write what the Trainer reads to resume: its state and, although they are loaded, the weights."""
        (folder / _STATE).write_text(self.trainer_state, encoding="utf-8")
        save_model(model, str(folder / _WEIGHTS))


def _resume(trainer: Trainer, saves: Checkpoints, world_size: int) -> _Resumed | None:
    optimizer, rest = _Kept(), _Kept()
    position = saves.resume(TrainingState(trainer.model, optimizer, rest, trainer.accelerator.scaler))
    if position is None:
        return None
    saved_by = rest.state["world_size"]
    if saved_by != world_size:
        raise MisuseError(
            f"the checkpoint was saved by {saved_by} processes, and transformers' Trainer, which counts its data in "
            f"steps of all of them, cannot continue with {world_size}: start {saved_by}, or use another folder"
        )
    _log.info("resumed in epoch %d after step %d", position.epoch + 1, position.step)
    generators = randomness.capture()
    return _Resumed(position, optimizer.state, rest.state["scheduler"], rest.state["trainer"], generators)


class DDPJobCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types where it is not installed
    """Notifies listeners of what a Trainer does, saves between its epochs, and stops it when all ranks agree."""

    def __init__(
        self,
        trainer: Trainer,
        *,
        requests: StopRequests,
        saves: Checkpoints | None,
        listeners: Sequence[Listener],
        resumed: _Resumed | None,
        world_size: int,
        save_every: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        trainer: that calls it.
        requests: to stop, already entered.
        saves: where to save; None does not save.
        listeners: are notified of everything.
        resumed: the checkpoint from which the training continues.
        world_size: number of processes.
        save_every: epochs between two checkpoints.
        clock: seconds.
        """
        self._trainer = trainer
        self._requests = requests
        self._saves = saves
        self._listeners = listeners
        self._resumed = resumed
        self._world_size = world_size
        self._save_every = save_every
        self._clock = clock
        self._saved = resumed.position if resumed is not None else Position()
        self._save_is_due = False
        self._evaluates = False
        self._steps_per_epoch = 0
        self._samples_per_step = 0
        self._consumed = 0
        # When the last step ended, and when a batch was available for the next one.
        self._before = self._mark = self._got = clock()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        train_dataloader: Iterable[Any],
        **_: object,
    ) -> None:
        """Restore what did not exist before, and report the plan."""
        # Data of unknown length are one epoch with the Trainer's maximum number of steps.
        batches = len(train_dataloader) if isinstance(train_dataloader, Sized) else 0
        self._steps_per_epoch = -(-batches // args.gradient_accumulation_steps) or state.max_steps
        self._samples_per_step = args.train_batch_size * args.gradient_accumulation_steps
        if self._resumed is not None:
            self._trainer.optimizer.load_state_dict(self._resumed.optimizer)
            self._trainer.lr_scheduler.load_state_dict(self._resumed.scheduler)
        epochs = -(-state.max_steps // self._steps_per_epoch)
        plan = Plan(epochs, state.max_steps, state.global_step, resumed=self._resumed is not None)
        self._notify(lambda listener: listener.started(plan))

    def on_epoch_begin(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: object
    ) -> None:
        """Check whether to stop, and report the epoch."""
        self._stop_if(self._requests.agreed_now(state.global_step), state)
        done = state.global_step // self._steps_per_epoch
        left = min((done + 1) * self._steps_per_epoch, state.max_steps) - state.global_step
        self._notify(lambda listener: listener.epoch_started(done + 1, left))
        # The first batch of an epoch draws random numbers; the batches that a resume skips draw others.
        if state.global_step % self._steps_per_epoch == 0:
            self._restore_random_numbers()
        self._begin(Activity.DATA)
        self._before = self._mark = self._clock()

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

    def loss_computed(self, model: torch.nn.Module, *_: object) -> None:
        """A hook of the model: its forward pass is done."""
        if model.training:
            seconds = self._clock() - self._mark
            self._notify(lambda listener: listener.loss_computed(seconds))

    def on_step_end(self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: object) -> None:
        """Count the step, and check whether to stop."""
        now, step = self._clock(), state.global_step
        self._consumed += self._samples_per_step * self._world_size
        seconds, data_seconds = now - self._before, self._got - self._before
        self._notify(lambda listener: listener.step_finished(step, self._samples_per_step, seconds, data_seconds))
        # At the end of an epoch an evaluation may be due, which would not run after a resume.
        if step % self._steps_per_epoch:
            self._stop_if(self._requests.agreed(step), state)
            self._begin(Activity.DATA)
        self._before = self._mark = self._clock()

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

    def on_epoch_end(self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Save, after the evaluation if one follows: a resume then begins with the next epoch."""
        epoch = state.global_step // self._steps_per_epoch
        ends = state.global_step >= state.max_steps or control.should_training_stop
        self._save_is_due = epoch % self._save_every == 0 or ends
        if not control.should_evaluate:
            self._save_if_due(state)

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
        control: TrainerControl,
        metrics: Mapping[str, float],
        **_: object,
    ) -> None:
        """Report the accuracy, and save what waited for it."""
        self._evaluates = False
        self._begin(Activity.STEP)
        accuracy = metrics.get(ACCURACY)
        if accuracy is not None:
            self._notify(lambda listener: listener.evaluated(float(accuracy), None))
        # A callback before this one may have ended the training because of the result.
        self._save_is_due = self._save_is_due or control.should_training_stop
        self._save_if_due(state)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: object) -> None:
        """Save if another callback has ended the training between two saves, unknown to this one."""
        # If the best model has been loaded, it is not that of this step.
        if self._position(state) != self._saved and not args.load_best_model_at_end:
            self._save(state)
        if state.global_step < state.max_steps:
            epochs, steps = -(-state.global_step // self._steps_per_epoch), state.global_step
            self._notify(lambda listener: listener.shortened(epochs, steps))

    def _restore_random_numbers(self) -> None:
        if self._resumed is not None:
            randomness.restore(self._resumed.generators)
            self._resumed = None

    def _save_if_due(self, state: TrainerState) -> None:
        if self._save_is_due:
            self._save_is_due = False
            self._save(state)

    def _save(self, state: TrainerState) -> None:
        if self._saves is None:
            return
        self._begin(Activity.CHECKPOINT)
        before = self._clock()
        rest = _Kept()
        rest.state = {
            "scheduler": self._trainer.lr_scheduler.state_dict(),
            "trainer": json.dumps(dataclasses.asdict(state)),
            "world_size": self._world_size,
        }
        position = self._position(state)
        everything = TrainingState(self._trainer.model, self._trainer.optimizer, rest, self._trainer.accelerator.scaler)
        self._saves.save(everything, position)
        self._saved = position
        self._begin(Activity.STEP)
        seconds = self._clock() - before
        self._notify(lambda listener: listener.checkpoint_saved(position.step, seconds))

    def _stop_if(self, agreed: bool, state: TrainerState) -> None:  # noqa: FBT001 what the ranks have agreed on
        if not agreed:
            return
        if self._position(state) != self._saved:
            self._save(state)
        saved = "saved" if self._saves is not None else "not saved"
        _log.info("stop requested: all ranks stop after step %d (%s)", state.global_step, saved)
        raise Stopped(state.global_step)

    def _position(self, state: TrainerState) -> Position:
        epoch, steps = divmod(state.global_step, self._steps_per_epoch)
        return Position(epoch, steps * self._samples_per_step * self._world_size, state.global_step)

    def _begin(self, activity: Activity) -> None:
        self._requests.activity_changed(activity)
        self._notify(lambda listener: listener.activity_changed(activity))

    def _notify(self, call: Callable[[Listener], None]) -> None:
        _notify(self._listeners, call)


def _notify(listeners: Sequence[Listener], call: Callable[[Listener], None]) -> None:
    for listener in listeners:
        call(listener)
