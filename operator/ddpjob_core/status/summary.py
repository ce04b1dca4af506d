"""status.summary: the columns of `kubectl get ddpjobs` as text."""

from ddpjob_core.api.status import DDPJobStatus, Phase, Progress, Summary
from ddpjob_core.wire.report import percent_of


def summarize(status: DDPJobStatus, loss_text: str) -> Summary:
    """The columns for a status.

    Args:
        status: the status that they stand in, all else decided.
        loss_text: the loss as text, "" to keep the one that is shown.
    """
    nodes, progress, trains = status.nodes, current_progress(status), status.phase is Phase.RUNNING
    return Summary(
        nodes="" if nodes is None else f"{nodes.ready + nodes.succeeded}/{nodes.desired}",
        epoch=_of(progress.epoch, progress.total_epochs),
        step=_of(progress.step, progress.total_steps),
        loss=(loss_text or status.summary.loss) if _is_current(status) else "",
        # A job that does not train now has neither a speed nor a time left.
        eta="" if not trains or progress.eta_seconds is None else format_seconds(progress.eta_seconds),
        speed=""
        if not trains or progress.samples_per_second is None
        else f"{format_count(progress.samples_per_second)}/s",
    )


def current_progress(status: DDPJobStatus) -> Progress:
    """How far the current attempt is: what it has reported, and before that the checkpoint that it goes on from.

    Without a checkpoint it begins anew: how far the attempt before was says nothing of it.
    """
    progress = status.progress
    if progress is None or _is_current(status):
        return progress or Progress()
    saved, total = progress.last_checkpoint_step, progress.total_steps
    if saved is None:
        return Progress()
    # Of the steps between the checkpoint and the end of the attempt nobody knows which belong to which epoch.
    epoch = progress.epoch if progress.step == saved else None
    return Progress(
        attempt=progress.attempt,
        epoch=epoch,
        total_epochs=progress.total_epochs,
        step=saved,
        total_steps=total,
        percent=percent_of(saved, total),
        last_step_time=progress.last_step_time,
        last_checkpoint_step=saved,
        observed_time=progress.observed_time,
    )


def without_pace(progress: Progress) -> Progress:
    """The progress of an attempt that was left: it stands where it stood, but nothing has a loss or a speed now."""
    return progress.model_copy(update={"loss": None, "samples_per_second": None, "eta_seconds": None})


def _is_current(status: DDPJobStatus) -> bool:
    return status.progress is None or status.progress.attempt in (None, status.attempt)


def _of(part: int | None, whole: int | None) -> str:
    if part is None:
        return ""
    return str(part) if whole is None else f"{part}/{whole}"


def format_seconds(seconds: int) -> str:
    """A span as kubectl prints ages: 38s, 5m10s, 2h5m, 3d4h."""
    minutes, rest = divmod(max(0, seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    for large, small, units in ((days, hours, "dh"), (hours, minutes, "hm"), (minutes, rest, "ms")):
        if large:
            return f"{large}{units[0]}{small}{units[1]}" if small else f"{large}{units[0]}"
    return f"{rest}s"


def format_count(value: float) -> str:
    """A count in at most five characters: 0.83, 12.5, 950, 1.2k, 48k, 3.1M."""
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if abs(value) < limit * 0.9995 or unit == "G":
            scaled = value / divisor
            digits = 0 if abs(scaled) >= 100 or (unit and abs(scaled) >= 10) else 1 if abs(scaled) >= 1 else 2  # noqa: PLR2004
            text = f"{scaled:.{digits}f}"
            return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
    raise AssertionError(value)
