"""What an evaluation has found, as all ranks agree on it, and whether it is the best one so far."""

from collections.abc import Mapping

from ddpjob_trainer.loop.early_stopping import EarlyStopping, Mode
from ddpjob_trainer.loop.history import History
from ddpjob_trainer.observability.listener import Evaluation
from ddpjob_trainer.observability.metric_names import ACCURACY, LOSS, named_numbers
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group


class Judging:
    """Counts the evaluations of a training; all ranks call its methods together."""

    def __init__(
        self,
        group: Group,
        *,
        early_stopping: EarlyStopping | None,
        modes: Mapping[str, Mode],
        metric: str | None,
        field: str,
    ) -> None:
        """Args:
        group: the processes of the training.
        early_stopping: to count for; None: for no end.
        modes: what looks at evaluations, in words, and which is better for it; all agree.
        metric: name of the number that counts.
        field: that says so, for messages.
        """
        self._field = field
        self._group = group
        self._needs = " and ".join(modes)
        self._metric = metric
        mode = next(iter(modes.values()), None)
        self._plain = metric or (LOSS if mode is Mode.MIN else ACCURACY)
        self.history = History(early_stopping, mode, metric if modes else None)
        """The evaluations so far, which checkpoints keep."""

    def agreed(self, found: object) -> dict[str, float]:
        """What rank 0 has found, by name.

        Args:
            found: of this rank; the other ranks need not have measured anything.

        Raises:
            TypeError: what rank 0 has is not a number, or numbers by name; on all ranks.
        """
        own, wrong = dict[str, float](), None
        try:
            own = named_numbers(found, self._plain) if self._group.first else own
        except (TypeError, ValueError) as reason:
            wrong = str(reason)
        # Ranks that disagreed on the end, or on a learning rate, would wait for each other or train different models.
        metrics, wrong = self._group.exchange.broadcast_json([own, wrong])
        if wrong is not None:
            raise TypeError(wrong)
        agreed: dict[str, float] = metrics
        return agreed

    def own(self, found: object) -> dict[str, float]:
        """What this rank has found, by name; a TypeError or ValueError says what it cannot be."""
        return named_numbers(found, self._plain)

    def judge(self, metrics: dict[str, float], step: int) -> Evaluation:
        """Count what all ranks have agreed on.

        Args:
            metrics: by name.
            step: optimizer steps before the evaluation.

        Raises:
            MisuseError: the metric does not name one of them, or has to.
        """
        metric = self._counting(metrics)
        best = self.history.add(step, metrics, metric)
        early_stop = self.history.early_stop
        no_improvement_for = None if early_stop is None else early_stop.no_improvement_for
        return Evaluation(step, metrics, metric, best=best, no_improvement_for=no_improvement_for)

    def _counting(self, metrics: Mapping[str, float]) -> str | None:
        """Name of the number that counts, None if none does."""
        names = ", ".join(metrics)
        if self._metric is not None and self._metric not in metrics:
            raise MisuseError(f"{self._field} is {self._metric!r}, but the evaluation gave {names}: name one of them")
        if not self._needs:
            # Of an accuracy larger is better, of others who knows.
            return ACCURACY if list(metrics) == [ACCURACY] else None
        if self._metric is None and len(metrics) > 1:
            raise MisuseError(
                f"the evaluation gave {names}: {self._field} must name the one that counts, since {self._needs}"
            )
        return self._metric or next(iter(metrics))
