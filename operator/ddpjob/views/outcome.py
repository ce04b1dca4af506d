"""How a job ended, in a few lines."""

from ddpjob.views.job import Job
from ddpjob.views.text import Line, Tone, ago, traceback_lines
from ddpjob_core.api.status import ConditionType, DDPJobStatus

_TRACEBACK_LINES = 6


def outcome_lines(job: Job) -> list[Line]:
    """The end of a job on a cluster, and for a failed one how to find out more; nothing if it has not ended."""
    lines = end_lines(job.name, job.status)
    if job.status.holds(ConditionType.FAILED):
        lines.append(Line(f"ddpjob why {job.name} -n {job.namespace} explains why", tone=Tone.DIM))
    return lines


def end_lines(name: str, status: DDPJobStatus) -> list[Line]:
    """The end of a job, wherever it ran: how long it took, or who failed and why; nothing if it has not ended."""
    took = ago(status.start_time, status.completion_time) if status.completion_time is not None else ""
    after = f" after {took}" if took else ""
    if status.holds(ConditionType.SUCCEEDED):
        loss = f", loss {status.summary.loss}" if status.summary.loss else ""
        apart = status.condition(ConditionType.SEPARATE_GROUPS)
        if apart is not None and apart.status == "True":
            return [Line(f"{name} has succeeded{after}{loss}, but not as one training: {apart.message}", tone=Tone.BAD)]
        return [Line(f"{name} has succeeded{after}{loss}", tone=Tone.GOOD)]
    failed = status.condition(ConditionType.FAILED)
    if failed is None or failed.status != "True":
        return []
    lines = [Line(f"{name} has failed{after}: {failed.reason}: {failed.message}", tone=Tone.BAD)]
    failure = status.failure
    if failure is not None and failure.traceback:
        shown = traceback_lines(failure.traceback, failed.message)[-_TRACEBACK_LINES:]
        lines += [Line(f"  {text}") for text in shown]
    return lines
