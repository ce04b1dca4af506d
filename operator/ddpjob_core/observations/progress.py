"""status.progress: what the program reports, live from rank 0 and finally in its pod's termination message."""

from ddpjob_core.api.status import DDPJobStatus, Progress
from ddpjob_core.observations.attempt import Attempt
from ddpjob_core.observations.observed import Observed, Terminated
from ddpjob_core.wire.progress import percent_of


def reported_progress(observed: Observed, attempt: Attempt) -> tuple[Progress, str] | None:
    """The newest progress of the current attempt and its loss as text, or None if nothing was reported.

    The termination message of ordinal 0 takes precedence: the last poll is always a little older than the end.
    """
    found = _from_rank_zero(observed, attempt)
    restarts = _process_restarts(observed, attempt)
    if found is None:
        return (Progress(attempt=attempt.number, process_restarts=restarts), "") if restarts else None
    progress, loss = found
    return progress.model_copy(update={"attempt": attempt.number, "process_restarts": restarts or None}), loss


def is_beyond(progress: Progress, known: Progress | None) -> bool:
    """Whether progress of the same attempt has a later step or checkpoint than what is known, and neither earlier."""
    if known is None or known.attempt != progress.attempt:
        return False
    before = (known.step or 0, known.last_checkpoint_step or 0)
    after = (progress.step or 0, progress.last_checkpoint_step or 0)
    return after != before and all(new >= old for new, old in zip(after, before, strict=True))


def with_restarts(status: DDPJobStatus, before: DDPJobStatus | None) -> DDPJobStatus:
    """The status with its restarts brought up to date with the steps and process restarts of its progress.

    Args:
        status: with the progress that will be written.
        before: the status that was last written.
    """
    progress = status.progress
    if progress is None:
        return status
    known = before.progress if before is not None else None
    counted = (known.process_restarts or 0) if known is not None and known.attempt == progress.attempt else 0
    steps = [
        step
        for step in (status.restarts.furthest_step, progress.step or None, progress.last_checkpoint_step)
        if step is not None
    ]
    restarts = status.restarts.model_copy(
        update={
            "process": status.restarts.process + max(0, (progress.process_restarts or 0) - counted),
            "furthest_step": max(steps, default=None),
        }
    )
    return status.model_copy(update={"restarts": restarts})


def current_progress(status: DDPJobStatus) -> Progress:
    """How far the current attempt is: what it has reported, and before that the checkpoint that it resumes from.

    Without a checkpoint it starts from the beginning, however far the previous attempt had come.
    """
    progress = status.progress
    if progress is None or is_current(status):
        return progress or Progress()
    saved, total = progress.last_checkpoint_step, progress.total_steps
    if saved is None:
        return Progress()
    # Which epoch a step between the checkpoint and the end of the attempt belongs to is unknown.
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
    """The progress of an abandoned attempt: its steps stay, but there is no current loss or speed."""
    return progress.model_copy(update={"loss": None, "samples_per_second": None, "eta_seconds": None})


def is_current(status: DDPJobStatus) -> bool:
    """Whether the progress is that of the current attempt."""
    return status.progress is None or status.progress.attempt in (None, status.attempt)


def _from_rank_zero(observed: Observed, attempt: Attempt) -> tuple[Progress, str] | None:
    first = attempt.nodes[0]
    if first is not None and isinstance(first.trainer, Terminated):
        report = first.trainer.report
        if report is not None and report.progress is not None:
            return report.progress.model_copy(update={"observed_time": observed.now}), report.loss_text
    live = observed.progress
    if live is not None and live.attempt == attempt.number:
        return live.progress, live.loss_text
    return None


def _process_restarts(observed: Observed, attempt: Attempt) -> int:
    """The highest number of restarts that an agent or a rank reports: each agent counts those it took part in."""
    live = [report.process_restarts for report in observed.ranks if report.attempt == attempt.number]
    ended = [
        report.process_restarts
        for pod in attempt.present
        if isinstance(pod.trainer, Terminated) and (report := pod.trainer.report) is not None
    ]
    return max((*live, *ended), default=0)
