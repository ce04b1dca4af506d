"""The progress that a training reports: on /progress while it runs, in the termination message at its end."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ddpjob_core.api.constants import MAX_NODES, MAX_PROCESSES
from ddpjob_core.api.counts import MOST_TIMES
from ddpjob_core.api.status import Progress, SlowPart
from ddpjob_core.wire.fields import MOST_SECONDS, MOST_STEPS, Fields

_LAST_GENERATION: Final = 2**31 - 1
_LARGEST_LOSS: Final = 1e300
_LARGEST_RATE: Final = 1e15
_LONGEST_LOSS_TEXT: Final = 16
_LAST_RANK: Final = MAX_NODES * MAX_PROCESSES - 1


@dataclass(frozen=True, slots=True)
class PollTarget:
    """Where a rank of an attempt answers /progress."""

    attempt: int
    address: str
    port: int
    rank: int = 0
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class SlowestReport:
    """The rank that slows down the others, as rank 0 reports it: it takes `factor` times as long as they do."""

    rank: int
    factor: float
    what: SlowPart


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What rank 0 of an attempt last reported on /progress. `loss_text` is the loss as shown, including nan and inf."""

    attempt: int
    progress: Progress
    loss_text: str = ""
    slowest: SlowestReport | None = None


def parse_progress(fields: Fields, observed: datetime | None = None) -> tuple[Progress, str]:
    """The progress in a /progress answer, and its loss as text. Values of a wrong type or range count as missing.

    Args:
        fields: the answer's JSON object.
        observed: when it was read, None where that is not known yet.
    """
    step, total = fields.whole("step", MOST_STEPS), fields.whole("totalSteps", MOST_STEPS)
    loss = fields.number("loss", _LARGEST_LOSS, least=-_LARGEST_LOSS)
    loss_text = fields.line("lossText", _LONGEST_LOSS_TEXT) or ("" if loss is None else f"{loss:.4g}")
    eta = fields.number("etaSeconds", MOST_SECONDS)
    rate = fields.number("samplesPerSecond", _LARGEST_RATE)
    progress = Progress(
        epoch=fields.whole("epoch", MOST_STEPS),
        total_epochs=fields.whole("totalEpochs", MOST_STEPS),
        step=step,
        total_steps=total,
        percent=percent_of(step, total),
        loss=loss,
        samples_per_second=None if rate is None else float(f"{rate:.6g}"),
        eta_seconds=None if eta is None else round(eta),
        last_step_time=fields.time("lastStepTime"),
        last_checkpoint_step=fields.whole("lastCheckpointStep", MOST_STEPS),
        rejoins=fields.whole("rejoins", _LAST_GENERATION),
        observed_time=observed,
    )
    return progress, loss_text


def parse_slowest(fields: Fields) -> SlowestReport | None:
    """The rank that slows down the others in a /progress answer; None if it names none, or any value is unusable.

    Args:
        fields: the answer's JSON object.
    """
    inner = fields.inner("slowest")
    if inner is None:
        return None
    rank, factor = inner.whole("rank", _LAST_RANK), inner.number("factor", MOST_TIMES, least=1)
    what = inner.choice("what", SlowPart)
    if rank is None or factor is None or what is None:
        return None
    # As many digits as are shown: a program that reports more would cause a write each time.
    return SlowestReport(rank, round(factor, 1), what)


def percent_of(step: int | None, total: int | None) -> int | None:
    """Completed steps in percent of all steps, at most 100; None if either is unknown."""
    return min(100, step * 100 // total) if step is not None and total else None
