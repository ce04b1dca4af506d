"""A loop of one's own, with everything that `train` does around its steps.

with Session() as session:
    model = session.model(build_model())
    optimizer = session.keep("optimizer", torch.optim.AdamW(model.parameters()))
    for step in session.steps(loader, epochs=3):
        with step as (images, labels):
            session.backward(cross_entropy(model(images), labels))
            session.step()
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.naming import training_in
from ddpjob_trainer.checkpointing.snapshot import Stateful
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.loop.finite import OnNan
from ddpjob_trainer.loop.handed_out import Computing, Step
from ddpjob_trainer.loop.limits import Ways, check_counts
from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.loop.own_evaluations import OwnEvaluations
from ddpjob_trainer.loop.own_steps import OwnSteps
from ddpjob_trainer.loop.registered import Registered
from ddpjob_trainer.observability.listener import Listener
from ddpjob_trainer.observability.log import configure_logging
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError, current_environment
from ddpjob_trainer.process.group import Group, process_group
from ddpjob_trainer.process.stop import noting_requests

_MODEL: Final = "model"
_Kept = TypeVar("_Kept", bound=Stateful)


class Session:
    """Trains by a loop of one's own, on all ranks together; to be entered with `with`."""

    def __init__(
        self,
        *,
        group: Group | None = None,
        seed: int = 0,
        optimization: Optimization | None = None,
        save_every: int = 1,
        save_every_steps: int | None = None,
        log_every: int = 10,
        on_nan: OnNan = OnNan.STOP,
        keep_best: str | None = None,
        metric: str | None = None,
        checkpoint_dir: str | None = None,
        name: str | None = None,
        asynchronous: bool = False,
        listeners: Sequence[Listener] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        group: what `process_group` gave; None joins it, and leaves it at the end.
        seed: of the weights, of the order of the samples, and together with the rank of what dropout draws.
        optimization: how a step is computed.
        save_every: epochs between two checkpoints; the last step has one in any case.
        save_every_steps: steps between two checkpoints within an epoch; None saves only at the end of epochs.
        log_every: steps between two readings of the loss, each of which waits for the device.
        on_nan: what to do about a loss or gradient that is not finite.
        keep_best: keep the checkpoint of the evaluation whose metric is the largest (`max`) or the smallest (`min`).
        metric: name of that number, if `evaluated` is given several.
        checkpoint_dir: folder for checkpoints; None uses the operator's, and saves nothing without one.
        name: of this training, for a process with several, such as folds: each has its own checkpoints.
        asynchronous: write checkpoints while the training continues.
        listeners: are notified of everything, after those that print, log and serve progress.
        clock: seconds.
        """
        check_counts("Session", save_every=save_every, save_every_steps=save_every_steps, log_every=log_every)
        self._given = group
        self._seed = seed
        self._how = optimization or Optimization()
        self._save_every, self._save_every_steps, self._log_every = save_every, save_every_steps, log_every
        self._on_nan = on_nan
        self._evaluations = OwnEvaluations(keep_best=keep_best, metric=metric)
        self._name = name
        self._checkpoint_dir, self._asynchronous = checkpoint_dir, asynchronous
        self._listeners = list(listeners)
        self._clock = clock
        self._exits = ExitStack()
        self._group: Group | None = None
        self._all: Registered | None = None
        self._led: OwnSteps | None = None

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            if self._given is None:
                environment = current_environment()
                configure_logging(environment)
                self._group = exits.enter_context(process_group(environment))
            else:
                self._group = self._given
            self._listeners.insert(0, Telemetry(self._group))
            # The same weights on all ranks; a resume makes the ranks differ.
            randomness.seed_everything(self._seed)
            checkpoints = Checkpoints.of_job(
                self._group, self._checkpoint_dir, asynchronous=self._asynchronous, name=self._name
            )
            exits.enter_context(training_in(None if checkpoints is None else checkpoints.location, self._name))
            self._evaluations.begin(self._group)
            self._all = Registered(
                self._group,
                self._how,
                self._on_nan,
                lambda step, what: self._steps.notify(lambda listener: listener.not_finite(step, what)),
            )
            if self._group.regrouping is not None:
                exits.enter_context(noting_requests())
            ways = Ways(
                seed=self._seed,
                how=self._how,
                save_every=self._save_every,
                save_every_steps=self._save_every_steps,
                log_every=self._log_every,
                name=self._name,
                clock=self._clock,
            )
            self._led = exits.enter_context(
                OwnSteps(
                    self._group,
                    self._all,
                    self._evaluations,
                    checkpoints=checkpoints,
                    listeners=self._listeners,
                    ways=ways,
                )
            )
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            return self._exits.__exit__(kind, reason, traceback)
        with self._exits:
            self._steps.end()
        return None

    @property
    def group(self) -> Group:
        """The processes of the training: `rank`, `world_size`, `device`, and `sum` over all ranks.

        Raises:
            MisuseError: the session has not been entered.
        """
        if self._group is None:
            raise MisuseError("a Session is used within `with Session() as session:`")
        return self._group

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self.group.device

    @property
    def position(self) -> Position:
        """How far the training has come: epochs, samples of the epoch, and steps, all committed."""
        return self._steps.position

    @property
    def should_stop(self) -> bool:
        """Whether all ranks stop when the loop asks for the next step, or ends."""
        return self._led is not None and self._led.should_stop

    def model(self, module: nn.Module, name: str = _MODEL) -> nn.Module:
        """Move a model to the device, and make it one that all ranks train together.

        Args:
            module: without parameters, such as a frozen part, it is only moved.
            name: in checkpoints; the first one's tensors are those of `model.safetensors`.

        Raises:
            MisuseError: the name is taken, or the ranks cannot train it together.
        """
        self._before_steps(f"model {name!r}")
        with self._steps.registering():
            return self._registered.add_model(name, module)

    def keep(self, name: str, state: _Kept) -> _Kept:
        """Save and resume something that has `state_dict` and `load_state_dict`; returns it.

        An optimizer is also what `step` changes the parameters with. The same names are kept on all ranks; what rank 0
        has is saved, and is what all have after a resume.

        Raises:
            MisuseError: the name is taken, the training has begun, or it cannot be saved.
        """
        self._before_steps(name)
        self._registered.add(name, state)
        return state

    def resume(self) -> bool:
        """Continue from the newest checkpoint, and return whether there was one; `steps` does it where a loop has not.

        Call it after everything has been registered.

        Raises:
            MisfitError: the checkpoint belongs to another model, or has other names.
            ResumeError: there are checkpoints, but none can be resumed from.
            MisuseError: there is no model or no optimizer, or the ranks cannot train them together.
        """
        return self._steps.resume()

    def steps(
        self, loader: Iterable[Any] | Dataset[Any], *, epochs: int, max_steps: int | None = None
    ) -> Iterator[Step]:
        """The steps that are left, each to be computed within `with`.

        A step is committed at the end of its `with`, which must have called `step`; a step whose `with` ends with
        `StepLost` is handed out again. When the loop asks for the next one, a checkpoint that is due is saved, with
        everything that the loop's body has done, and all ranks stop if any of them was asked to.

        Args:
            loader: a DataLoader as for a single process, which is shared between the ranks.
            epochs: passes through the data, including those before a resume.
            max_steps: after which the training ends, including those before a resume; None: when the epochs do.

        Raises:
            Stopped: all ranks were asked to stop and have saved their last step.
            SaveError: a checkpoint could not be written.
            MisuseError: the loader cannot be shared, a step has not been computed, or no step is left for this loop
                after another one.
        """
        return self._steps.steps(loader, epochs=epochs, max_steps=max_steps)

    def backward(self, loss: torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]) -> None:
        """Compute the gradients of a loss.

        Args:
            loss: the mean over the samples of the batch; or a sum with its weight, once for each batch: the loss of a
                step is then the sum over all its batches and ranks divided by all their weights.

        Raises:
            MisuseError: no step is being computed, or the loss is of another kind than on other ranks or before.
        """
        self._current.backward(loss)

    def step(self, *optimizers: Optimizer) -> bool:
        """Change the parameters with these optimizers, or with all that are kept.

        Returns:
            Whether all of them have, on all ranks: a step whose gradients overflow in float16, or which `on_nan` skips,
            is left out, and does not advance a schedule. With float16 the answer waits for the device.

        Raises:
            MisuseError: no step is being computed, or an optimizer is not kept.
        """
        return self._current.step(optimizers)

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of the forward pass, as `optimization` says."""
        return self._how.autocast(self.device)

    def evaluation(self) -> AbstractContextManager[None]:
        """Evaluate in the body: without gradients, all models in evaluation mode, in the precision of the training.

        All ranks enter it; rank 0 may measure alone then, for as long as it likes. Afterwards modes and random numbers
        are what they were.
        """
        return self._steps.evaluation()

    def evaluated(self, found: float | Mapping[str, float] | None) -> None:
        """Show an accuracy from 0 to 1, or several numbers by name; a TypeError or ValueError says what cannot be.

        With `keep_best` all ranks call it, between two steps, and what rank 0 gives counts; others may give None.
        """
        self._steps.evaluated(found)

    def save(self) -> None:
        """Save a checkpoint now, between two steps: after everything that the loop does with the last one.

        Raises:
            SaveError: it could not be written.
            MisuseError: a step is being computed.
        """
        if self._steps.current is not None:
            raise MisuseError("session.save() is for between two steps: call it after the `with` of a step")
        self._steps.save()

    @property
    def _steps(self) -> OwnSteps:
        if self._led is None:
            raise MisuseError("a Session is used within `with Session() as session:`")
        return self._led

    @property
    def _registered(self) -> Registered:
        if self._all is None:
            raise MisuseError("a Session is used within `with Session() as session:`")
        return self._all

    @property
    def _current(self) -> Computing:
        computing = self._steps.current
        if computing is None:
            raise MisuseError("no step is being computed: `for step in session.steps(...):`, and `with step as batch:`")
        return computing

    def _before_steps(self, name: str) -> None:
        if self._steps.resumed is not None:
            raise MisuseError(f"{name} comes too late: register everything before session.resume() and session.steps()")
