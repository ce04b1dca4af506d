"""status.summary: the columns of `kubectl get ddpjobs` as text."""

from ddpjob_core.api.columns import Summary
from ddpjob_core.api.display import format_count, format_seconds
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.observations.progress import current_progress, is_current


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
        loss=(loss_text or status.summary.loss) if is_current(status) else "",
        # A job that does not train now has neither a speed nor a time left.
        eta="" if not trains or progress.eta_seconds is None else format_seconds(progress.eta_seconds),
        speed=""
        if not trains or progress.samples_per_second is None
        else f"{format_count(progress.samples_per_second)}/s",
    )


def _of(part: int | None, whole: int | None) -> str:
    if part is None:
        return ""
    return str(part) if whole is None else f"{part}/{whole}"
