"""The progress that a training reports: on /progress while it runs, in the termination message at its end."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ddpjob_core.api.base import parse_time
from ddpjob_core.api.status import Progress
from ddpjob_core.wire.values import finite_number, text_or_none, whole_number


@dataclass(frozen=True, slots=True)
class PollTarget:
    """Where a rank of an attempt answers /progress."""

    attempt: int
    address: str
    port: int
    rank: int = 0
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What rank 0 of an attempt last reported on /progress. `loss_text` is the loss as shown, including nan and inf."""

    attempt: int
    progress: Progress
    loss_text: str = ""


def parse_progress(raw: dict[str, Any], observed: datetime) -> tuple[Progress, str]:
    """The progress in a /progress answer, and its loss as text. Values of a wrong type count as missing.

    Args:
        raw: the answer's JSON object.
        observed: when it was read.
    """
    step, total = whole_number(raw.get("step")), whole_number(raw.get("totalSteps"))
    loss = finite_number(raw.get("loss"))
    loss_text = text_or_none(raw.get("lossText")) or ("" if loss is None else f"{loss:.4g}")
    eta = finite_number(raw.get("etaSeconds"))
    progress = Progress(
        epoch=whole_number(raw.get("epoch")),
        total_epochs=whole_number(raw.get("totalEpochs")),
        step=step,
        total_steps=total,
        percent=percent_of(step, total),
        loss=loss,
        samples_per_second=_rounded(finite_number(raw.get("samplesPerSecond"))),
        eta_seconds=None if eta is None else round(eta),
        last_step_time=parse_time(raw.get("lastStepTime")),
        last_checkpoint_step=whole_number(raw.get("lastCheckpointStep")),
        observed_time=observed,
    )
    return progress, loss_text[:16]


def percent_of(step: int | None, total: int | None) -> int | None:
    """Completed steps in percent of all steps, at most 100; None if either is unknown."""
    return min(100, step * 100 // total) if step is not None and total else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
