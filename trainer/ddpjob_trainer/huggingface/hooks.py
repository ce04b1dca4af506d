"""Where a Trainer itself must act differently: callbacks are notified of its saves, and cannot make them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import torch
import transformers
from transformers import Trainer

from ddpjob_trainer.huggingface.resuming import Pass
from ddpjob_trainer.process.environment import MisuseError

_SAVE: Final = "_save_checkpoint"
_AFTER_STEP: Final = "_maybe_log_save_evaluate"
_START: Final = "_init_training_state"
_BATCH: Final = "training_step"


class Course(Protocol):
    """What a Trainer is led by."""

    def save(self) -> None:
        """A checkpoint is due."""

    def batch_done(self, loss: torch.Tensor) -> None:
        """The gradients of a batch are computed; its loss is this rank's."""

    def step_done(self) -> None:
        """A step is done, with the log, the evaluation and the checkpoint that were due after it."""

    def data_start(self) -> Pass:
        """Where in data of unknown length the training starts."""


@contextmanager
def led(trainer: Trainer, course: Course) -> Iterator[None]:
    """Within the body a Trainer saves as the course does, and tells it when a step is done.

    Raises:
        MisuseError: this version of transformers has no such places.
    """
    missing = [name for name in (_SAVE, _AFTER_STEP, _START, _BATCH) if not callable(getattr(trainer, name, None))]
    if missing:
        raise MisuseError(
            f"the Trainer of transformers {transformers.__version__} has no {', '.join(missing)}, where this library "
            "saves and resumes: install a version that ddpjob[hf] allows"
        )
    after_step, start, batch = (getattr(trainer, name) for name in (_AFTER_STEP, _START, _BATCH))

    def save(*_: object, **__: object) -> None:
        trainer.store_flos()
        course.save()

    def done(*args: Any, **options: Any) -> None:  # noqa: ANN401 passed on as they are
        after_step(*args, **options)
        course.step_done()

    def compute(*args: Any, **options: Any) -> torch.Tensor:  # noqa: ANN401 passed on as they are
        loss: torch.Tensor = batch(*args, **options)
        course.batch_done(loss)
        return loss

    def begin(
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        *args: Any,  # noqa: ANN401 passed on as they are
        **options: Any,  # noqa: ANN401
    ) -> tuple[int, int]:
        passes, batches = start(max_steps, num_update_steps_per_epoch, num_train_epochs, *args, **options)
        if trainer.state.global_step >= max_steps:
            # The Trainer would look for the end only after another step.
            return num_train_epochs, 0
        if num_train_epochs != sys.maxsize:
            return passes, batches
        # Data of unknown length, of which the Trainer takes all passes for one: it would skip more than one has.
        begun = course.data_start()
        return begun.number, begun.steps * trainer.args.gradient_accumulation_steps

    with _replaced(trainer, {_SAVE: save, _AFTER_STEP: done, _START: begin, _BATCH: compute}):
        yield


@contextmanager
def _replaced(trainer: Trainer, methods: dict[str, Callable[..., Any]]) -> Iterator[None]:
    own = vars(trainer)
    before = {name: own[name] for name in methods if name in own}
    own.update(methods)
    try:
        yield
    finally:
        for name in methods:
            del own[name]
        own.update(before)
