"""Recent losses as a row of small bars."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ddpjob.views.job import Job

_BARS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 20


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """One bar per value of the newest ones, a full bar for the highest; equal values are low bars."""
    shown = values[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = high - low
    # Compared before the division: the span of the largest floats is infinite.
    scale = (len(_BARS) - 1) / span if 0 < span < float("inf") else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


@dataclass
class LossHistory:
    """The losses seen for each job, one per step."""

    width: int = WIDTH
    _losses: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)

    def see(self, jobs: Iterable[Job]) -> None:
        """Record the current state of the jobs; those that no longer exist are forgotten."""
        kept: dict[str, deque[tuple[int, float]]] = {}
        for job in jobs:
            seen = self._losses.get(job.record.uid) or deque(maxlen=self.width)
            progress = job.status.progress
            if progress is not None and progress.loss is not None:
                step = progress.step or 0
                if not seen or seen[-1] != (step, progress.loss):
                    seen.append((step, progress.loss))
            kept[job.record.uid] = seen
        self._losses = kept

    def line(self, job: Job) -> str:
        """The sparkline of a job."""
        return sparkline([loss for _, loss in self._losses.get(job.record.uid, ())], self.width)
