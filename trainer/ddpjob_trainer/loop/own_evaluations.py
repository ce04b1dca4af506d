"""Evaluations by a loop of one's own, and the checkpoint of the best one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ddpjob_trainer.loop.choice import one_of
from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.early_stopping import Mode
from ddpjob_trainer.loop.evaluating import measuring, report
from ddpjob_trainer.loop.history import History
from ddpjob_trainer.loop.judging import Judging
from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.loop.registered import Registered
from ddpjob_trainer.observability.listener import Evaluation
from ddpjob_trainer.observability.metric_names import ACCURACY, check_name, named_numbers
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

Guarded = Callable[[Callable[[], object]], bool]
"""Calls what needs the other ranks, and returns whether they have all been there."""
_METRIC: Final = "Session(metric=...)"


class OwnEvaluations:
    """Measures and reports; with `keep_best` it also counts what was found."""

    def __init__(self, *, keep_best: str | None, metric: str | None) -> None:
        """Args:
        keep_best: which of two evaluations is better; None: no checkpoint is kept for one.
        metric: name of the number that counts.

        Raises:
            ValueError: it is neither `max` nor `min`, or the name cannot be one.
            MisuseError: there is a metric for nothing.
        """
        self._mode = None if keep_best is None else one_of(Mode, "Session(keep_best=...)", keep_best)
        if metric is not None:
            check_name(_METRIC, metric)
            if keep_best is None:
                raise MisuseError(f"{_METRIC} names what keep_best looks at: give both, or neither")
        self._metric = metric
        self._first = True
        self._judging: Judging | None = None
        self._best_at: int | None = None

    def begin(self, group: Group) -> None:
        """The session begins."""
        self._first = group.first
        if self._mode is not None:
            modes = {f"keep_best is {self._mode}": self._mode}
            self._judging = Judging(group, early_stopping=None, modes=modes, metric=self._metric, field=_METRIC)

    @property
    def history(self) -> History | None:
        """What checkpoints keep of them."""
        return None if self._judging is None else self._judging.history

    @property
    def best_at(self) -> int | None:
        """Step of an evaluation that is the best one, and whose checkpoint is not saved yet."""
        return self._best_at

    def go_on(self, best_at: int | None) -> None:
        """Go on where another rank was."""
        self._best_at = best_at

    @property
    def best_step(self) -> int | None:
        """Step of the checkpoint to keep in addition to the newest ones."""
        return None if self.history is None or self.history.best is None else self.history.best.step

    def save(self, course: Course, *, due: bool) -> None:
        """Between two steps: save the checkpoint of an evaluation that is the best one, or else what is due.

        Raises:
            SaveError: it could not be written.
        """
        best = self._best_at
        # Its result belongs to the checkpoint, which may have been written before.
        if best is not None and best == course.position.step:
            course.save()
        elif due:
            course.save_rest()
        # Only now: a rank may be lost meanwhile.
        self._best_at = None

    @contextmanager
    def measuring(
        self, course: Course, group: Group, registered: Registered, how: Optimization, guarded: Guarded
    ) -> Iterator[None]:
        """Evaluate in the body; rank 0 may do so alone, with what all ranks train.

        Args:
            course: of the training.
            group: its processes.
            registered: its models.
            how: a step is computed.
            guarded: calls what needs the other ranks.
        """
        together = registered.trained
        buffers = [each for model in together for each in model.module.buffers()] if how.broadcast_buffers else []
        before = [model.require_forward_param_sync for model in together]
        try:
            modules = [*together, *registered.modules]
            with measuring(course, group, modules, buffers, guarded=guarded), how.autocast(group.device):
                for model in together:
                    # Its forward pass would exchange the buffers, and rank 0 may be alone.
                    model.require_forward_param_sync = False
                yield
        finally:
            for model, value in zip(together, before, strict=True):
                # torch forgets it in a pass without gradients: the next step would leave the exchange out.
                model.require_forward_param_sync = value

    def evaluated(
        self, found: float | Mapping[str, float] | None, course: Course, guarded: Guarded, *, between_steps: bool
    ) -> None:
        """Report what was found, and count it.

        Args:
            found: of this rank; ranks other than 0 may have None. With `keep_best`, that of rank 0 counts.
            course: of the training.
            guarded: calls what needs the other ranks.
            between_steps: whether no step is being computed, and the training has begun.

        Raises:
            TypeError: it is not a number, or numbers by name.
            ValueError: a name cannot be one.
            MisuseError: the number that counts is missing, or no checkpoint can be of this point.
        """
        step, judging = course.position.step, self._judging
        if judging is None and found is None and not self._first:
            return
        if judging is None:
            report(Evaluation(step, named_numbers(found, ACCURACY)), course.notify)
            return
        if not between_steps:
            raise MisuseError(
                "with keep_best, session.evaluated() is for between two steps: call it after the `with` of a step, or "
                "after session.resume()"
            )
        agreed = dict[str, float]()
        if not guarded(lambda: agreed.update(judging.agreed(found))):
            if not self._first:
                # It learns of it with the state of rank 0.
                return
            agreed = judging.own(found)
        evaluation = judging.judge(agreed, step)
        report(evaluation, course.notify)
        if evaluation.best:
            self._best_at = step
