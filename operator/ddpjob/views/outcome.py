"""How a followed job has ended, in a few lines."""

from ddpjob.api.status import ConditionType
from ddpjob.jobs import Job
from ddpjob.views.text import Line, Tone, ago

_TRACEBACK_LINES = 6


def outcome_lines(job: Job) -> list[Line]:
    """The end of a job: how long it took, or who failed and why; nothing for one that has not ended."""
    status = job.status
    took = ago(status.start_time, status.completion_time) if status.completion_time is not None else ""
    after = f" after {took}" if took else ""
    if status.holds(ConditionType.SUCCEEDED):
        loss = f", loss {status.summary.loss}" if status.summary.loss else ""
        return [Line(f"{job.name} has succeeded{after}{loss}", tone=Tone.GOOD)]
    failed = status.condition(ConditionType.FAILED)
    if failed is None or failed.status != "True":
        return []
    lines = [Line(f"{job.name} has failed{after}: {failed.reason}: {failed.message}", tone=Tone.BAD)]
    failure = status.failure
    if failure is not None and failure.traceback:
        shown = failure.traceback.rstrip().split("\n")[-_TRACEBACK_LINES:]
        lines += [Line(f"  {text}") for text in shown]
    lines.append(Line(f"ddpjob why {job.name} -n {job.namespace} tells the whole story", tone=Tone.DIM))
    return lines
