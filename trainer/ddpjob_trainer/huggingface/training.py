"""A whole training with transformers' Trainer in one call."""

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import Trainer

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.naming import training_in
from ddpjob_trainer.huggingface.arguments import check, keep_last
from ddpjob_trainer.huggingface.callback import DDPJobCallback
from ddpjob_trainer.huggingface.hooks import led
from ddpjob_trainer.huggingface.resuming import resume
from ddpjob_trainer.loop.choice import one_of
from ddpjob_trainer.loop.finite import OnNan
from ddpjob_trainer.loop.survival import decline
from ddpjob_trainer.observability.listener import Listener
from ddpjob_trainer.observability.log import EpochLines
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.stop import Stopped, StopRequests

with warnings.catch_warnings(action="ignore", category=FutureWarning):
    # accelerate imports it when it wraps a model; some versions of torch emit warnings about themselves.
    pass


def train(
    trainer: Trainer,
    group: Group,
    *,
    save_every: int | None = None,
    checkpoint_dir: str | None = None,
    name: str | None = None,
    asynchronous: bool = False,
    on_nan: OnNan = OnNan.STOP,
    listeners: Sequence[Listener] = (),
) -> None:
    """Call `trainer.train()` as a DDPJob: with progress, checkpoints, resume, and an agreed stop on SIGTERM.

    Checkpoints have the same content as those of `ddpjob_trainer.train`, and the Trainer's state. They are saved when
    the Trainer's arguments say so (`save_strategy`, `save_steps`, `save_total_limit`), instead of the Trainer's own,
    and after the last step.

    Args:
        trainer: not trained yet, created within `process_group`.
        group: the processes of the training.
        save_every: epochs between two checkpoints, with `save_strategy="no"`; None is 1 there.
        checkpoint_dir: folder for the checkpoints of jobs; None uses the operator's, and saves nothing without one.
        name: of this training, for a process with several, such as folds: each has its own checkpoints.
        asynchronous: write checkpoints while the training continues.
        on_nan: what to do about a loss or gradient that is not finite; the Trainer's losses are looked at when it logs
            and before each save.
        listeners: are notified of everything, after those that print, log and serve progress.

    Raises:
        Stopped: all ranks were asked to stop and have saved their last step; a resume continues with the next one.
        SaveError: a checkpoint could not be written; with asynchronous ones on rank 0 alone after the step in which it
            failed, whose end the others notice.
        NonFiniteError: a loss, a gradient or the state is not finite, by `on_nan`; on all ranks.
        MisfitError: the checkpoint to resume from belongs to another model.
        MisuseError: it was saved by another number of processes, or the Trainer's arguments ask for something that is
            not supported, which the message names; or this process has trained before, without a name of its own.
        ValueError: save_every is below 1, or on_nan is another word.
    """
    on_nan = one_of(OnNan, "on_nan", on_nan)
    if save_every is not None and save_every < 1:
        raise ValueError(f"save_every must be at least 1, not {save_every}")
    kept = keep_last(trainer.args)
    saves = Checkpoints.of_job(group, checkpoint_dir, keep_last=kept, asynchronous=asynchronous, name=name)
    check(trainer, group, save_every=save_every, saves=saves is not None)
    decline(group, "Hugging Face's Trainer has a loop of its own, and goes on from the last checkpoint")
    told = (EpochLines(group, trainer.args.per_device_train_batch_size), Telemetry(group), *listeners)
    resumed = resume(trainer, saves, group.world_size) if saves is not None else None
    try:
        with StopRequests(group) as requests, tempfile.TemporaryDirectory() as folder:
            if resumed is not None:
                resumed.write(trainer.model, Path(folder))
            callback = DDPJobCallback(
                trainer,
                requests=requests,
                saves=saves,
                listeners=told,
                resumed=resumed,
                group=group,
                save_every=save_every or 1,
                on_nan=on_nan,
            )
            trainer.add_callback(callback)
            try:
                with training_in(None if saves is None else saves.location, name), led(trainer, callback):
                    trainer.train(resume_from_checkpoint=folder if resumed is not None else None)
            finally:
                # An evaluation or another training afterwards is up to the program.
                callback.close()
                trainer.remove_callback(callback)
    except Stopped as stopped:
        step = stopped.step
        _notify(told, lambda listener: listener.stopped(step))
        raise
    except BaseException:
        _notify(told, lambda listener: listener.failed())
        raise
    _notify(told, lambda listener: listener.finished())


def _notify(listeners: Sequence[Listener], call: Callable[[Listener], None]) -> None:
    for listener in listeners:
        call(listener)
