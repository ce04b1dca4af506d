"""Evaluations of a training: what they are agreed to be, and what follows from them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.early_stopping import Mode
from ddpjob_trainer.loop.judging import Judging
from ddpjob_trainer.loop.settings import Settings
from ddpjob_trainer.observability.listener import Evaluation, Listener
from ddpjob_trainer.observability.metric_names import ACCURACY
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.patience import wait_for_first

Evaluate = Callable[[nn.Module], float | Mapping[str, float]]
"""Given the model in evaluation mode, what it is worth: its accuracy from 0 to 1, or with `Mode.MIN` a loss; or several
numbers by name, of which `accuracy` is shown as such. Called on all ranks.

All ranks use the result of rank 0, whatever the others return. What it draws from random number generators, and the
mode in which it leaves the model, are of no consequence to the training.
"""

_log = logging.getLogger(__name__)


class Evaluating:
    """Evaluates a model, and counts what it finds for early stopping, ReduceLROnPlateau and the best checkpoint."""

    def __init__(
        self,
        group: Group,
        module: nn.Module,
        evaluate: Evaluate | None,
        *,
        settings: Settings,
        scheduler: LRScheduler | None,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Args:
        group: the processes of the training.
        module: the model.
        evaluate: measures it; None never does.
        settings: which number counts, and for what.
        scheduler: of the optimizer; only a ReduceLROnPlateau is advanced here.
        autocast: the precision of the forward pass.

        Raises:
            MisuseError: settings or scheduler need evaluations without `evaluate`, or disagree on whether a larger one
                is better.
        """
        self._plateau = scheduler if isinstance(scheduler, ReduceLROnPlateau) else None
        if evaluate is None:
            for name in ("early_stopping", "keep_best", "metric", "evaluate_every_steps"):
                if getattr(settings, name) is not None:
                    raise MisuseError(f"{name} needs evaluations: pass evaluate=..., or remove {name}")
            if self._plateau is not None:
                raise MisuseError("ReduceLROnPlateau needs evaluations: pass evaluate=...")
        self._judging = Judging(
            group,
            early_stopping=settings.early_stopping,
            modes=_modes(settings, self._plateau),
            metric=settings.metric,
            field="Settings.metric",
        )
        self._keeps = settings.keep_best is not None or settings.early_stopping is not None
        self._shares_buffers = settings.optimization.broadcast_buffers
        self._group = group
        self._module = module
        self._evaluate = evaluate
        self._autocast = autocast
        self.history = self._judging.history
        """The evaluations so far, which checkpoints keep."""

    @property
    def possible(self) -> bool:
        """Whether there is anything to evaluate with."""
        return self._evaluate is not None

    @property
    def stop_is_due(self) -> bool:
        """Whether evaluations have ended the training."""
        return self.history.early_stop is not None and self.history.early_stop.due

    @property
    def why_early(self) -> str | None:
        """Why evaluations have ended the training, None if they have not."""
        early_stop = self.history.early_stop
        if early_stop is None or not early_stop.due:
            return None
        return f"no improvement in {early_stop.no_improvement_for} evaluations"

    @property
    def kept_step(self) -> int | None:
        """Steps before the best evaluation, whose checkpoint is to be kept; None before it, or if none is."""
        return self.history.best.step if self._keeps and self.history.best is not None else None

    def run(self, course: Course) -> None:
        """Evaluate the model at the course's position, and report what was found.

        Raises:
            TypeError: what it returned on rank 0 is not a number, or numbers by name; on all ranks.
            MisuseError: `Settings.metric` does not name one of them, or has to; on all ranks.
        """
        if self._evaluate is not None:
            self._apply(self._evaluated(self._evaluate, course), course)

    def _evaluated(self, evaluate: Evaluate, course: Course) -> dict[str, float]:
        buffers = self._module.buffers() if self._shares_buffers else ()
        with measuring(course, self._group, [self._module], buffers), self._autocast():
            found = evaluate(self._module)
        return self._judging.agreed(found)

    def _apply(self, metrics: dict[str, float], course: Course) -> None:
        evaluation = self._judging.judge(metrics, course.position.step)
        report(evaluation, course.notify)
        if self._plateau is not None and evaluation.metric is not None:
            self._plateau.step(metrics[evaluation.metric])

    def say_early_end(self, course: Course) -> None:
        """Report that evaluations have ended the training at the course's position."""
        position, best = course.position, self.history.best
        epoch = position.epoch + (position.consumed > 0)
        after = "" if best is None else f"; the best was after step {best.step}"
        _log.info("early stop after epoch %d: %s%s", epoch, self.why_early, after)
        course.shortened()


def report(evaluation: Evaluation, notify: Callable[[Callable[[Listener], None]], None]) -> None:
    """Report an evaluation to listeners."""
    notify(lambda listener: listener.measured(evaluation))
    accuracy = evaluation.metrics.get(ACCURACY)
    if accuracy is not None:
        notify(lambda listener: listener.evaluated(accuracy, evaluation.no_improvement_for))


@contextmanager
def measuring(
    course: Course,
    group: Group,
    modules: Iterable[nn.Module],
    buffers: Iterable[torch.Tensor],
    *,
    guarded: Callable[[Callable[[], object]], object] = lambda work: work(),
) -> Iterator[None]:
    """Evaluate in the body, which rank 0 may do alone, for as long as it likes; all ranks enter it together.

    Args:
        course: of the training.
        group: its processes.
        modules: are in evaluation mode meanwhile.
        buffers: of which all ranks get the values of rank 0.
        guarded: calls what needs the other ranks.
    """

    def share() -> None:
        for buffer in buffers:
            # As the next forward pass would: all ranks evaluate what a checkpoint holds, and what a resume would.
            group.exchange.copy_of_first(buffer)

    course.begin(Activity.EVALUATION)
    guarded(share)
    with undisturbed(modules):
        yield
    # The others would run into the timeout of their next collective.
    guarded(wait_for_first)
    course.begin(Activity.STEP)


@contextmanager
def undisturbed(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Evaluate in the body: all modules are in evaluation mode, nothing has a gradient.

    Afterwards each of their modules has the mode, and this process the random numbers, that it had.
    """
    whole = list(modules)
    modes = [(each, each.training) for module in whole for each in module.modules()]
    before = [module.training for module in whole]
    generators = randomness.generators()
    try:
        for module in whole:
            module.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in zip(whole, before, strict=True):
            # It may do more than to remember it.
            module.train(training)
        for module, training in modes:
            module.training = training
        randomness.set_generators(generators)


def _modes(settings: Settings, plateau: LRScheduler | None) -> dict[str, Mode]:
    """What looks at evaluations, in words, and which is better for it.

    Raises:
        MisuseError: they disagree.
    """
    modes: dict[str, Mode] = {}
    if settings.early_stopping is not None:
        modes[f"early_stopping has mode {settings.early_stopping.mode}"] = settings.early_stopping.mode
    if settings.keep_best is not None:
        modes[f"keep_best is {settings.keep_best}"] = settings.keep_best
    if plateau is not None:
        modes[f"ReduceLROnPlateau has mode {plateau.mode}"] = Mode(plateau.mode)
    if len(set(modes.values())) > 1:
        raise MisuseError(f"{' and '.join(modes)}: both use the same evaluations and must agree on which is better")
    return modes
