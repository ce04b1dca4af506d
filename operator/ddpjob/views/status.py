"""`ddpjob status`: the state of a job, in a few lines."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ddpjob.views.job import Job
from ddpjob.views.progress import shown_phase, waiting_for
from ddpjob.views.slowest import slowest_rank
from ddpjob.views.text import Line, Tone, ago, block, tone_of, without
from ddpjob_core.api.base import format_time, parse_time
from ddpjob_core.api.columns import COLUMNS, Column
from ddpjob_core.api.display import format_count
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Failure, Phase
from ddpjob_core.observations.progress import current_progress


def status_lines(job: Job, now: datetime) -> list[Line]:
    """What to know about a job first: its phase, what it waits for, and how its training is doing."""
    status = job.status
    lines = [
        Line(f"{job.namespace}/{job.name}", "Job", Tone.TITLE),
        Line(_phase(job, now), "Phase", tone_of(status)),
        *_why(status),
        Line(_nodes(status), "Nodes") if status.nodes is not None else Line(str(_desired(job)), "Nodes"),
        Line(_attempt(job), "Attempt"),
        *_progress(status, now),
    ]
    if status.slowest is not None:
        lines.append(Line(slowest_rank(status), "Slowest", Tone.WARN))
    if status.failure is not None:
        lines += _failure(job, status.failure)
    return lines


def _phase(job: Job, now: datetime) -> str:
    status = job.status
    if status.finished and status.completion_time is not None:
        took = ago(status.start_time, status.completion_time)
        after = f" after {took}" if took else ""
        return f"{shown_phase(status)}{after}, {ago(status.completion_time, now)} ago"
    since = max((c.last_transition_time for c in status.conditions), default=None)
    lasting = f" for {ago(since, now)}" if since is not None else ""
    created = ago(job.created, now)
    return f"{shown_phase(status)}{lasting}" + (f", created {created} ago" if created else "")


def _why(status: DDPJobStatus) -> list[Line]:
    failed = status.condition(ConditionType.FAILED)
    if failed is not None and failed.status == "True":
        said = status.failure.message if status.failure is not None else ""
        return block("Why", f"{failed.reason}: {without(failed.message, said, 'the root cause below')}", Tone.BAD)
    apart = status.condition(ConditionType.SEPARATE_GROUPS)
    if apart is not None and apart.status == "True":
        return block("But", apart.message, Tone.BAD)
    waits = waiting_for(status)
    if not waits:
        return []
    trains = status.phase is Phase.RUNNING
    return block("Note" if trains else "Waiting for", waits, Tone.DIM if trains else Tone.WARN)


def _desired(job: Job) -> str:
    return f"{job.record.spec.nodes} requested" if job.record.spec is not None else "unknown"


def _nodes(status: DDPJobStatus) -> str:
    nodes = status.nodes
    if nodes is None:
        return ""
    counts = (("running", nodes.ready), ("succeeded", nodes.succeeded), ("failed", nodes.failed))
    states = ", ".join(f"{count} {word}" for word, count in counts if count) or "none running"
    each = f", {status.procs_per_node} process{'es' if status.procs_per_node != 1 else ''} per node"
    return f"{states}, of {nodes.desired}" + (each if status.procs_per_node else "")


def _attempt(job: Job) -> str:
    status, spec = job.status, job.record.spec
    restarts = status.restarts
    allowed = f" of {spec.restart.max_restarts}" if spec is not None else ""
    parts = [f"{status.attempt}", f"{restarts.counted}{allowed} restarts used"]
    if restarts.ignored:
        parts.append(f"{restarts.ignored} not counted")
    if restarts.process:
        parts.append(f"{restarts.process} process restarts in running pods")
    if restarts.last_reason:
        parts.append(f"last: {restarts.last_reason}")
    return ", ".join(parts)


def _progress(status: DDPJobStatus, now: datetime) -> list[Line]:
    if status.progress is None:
        return []
    progress, shown = current_progress(status), status.summary
    percent = f" ({progress.percent}%)" if progress.percent is not None else ""
    parts = [f"epoch {shown.epoch}" if shown.epoch else "", f"step {shown.step}{percent}" if shown.step else ""]
    parts.append(f"loss {shown.loss}" if shown.loss else "")
    reached = ", ".join(part for part in parts if part)
    if reached and progress.attempt not in (None, status.attempt):
        reached += f", saved by attempt {progress.attempt}: attempt {status.attempt} has not reported a step yet"
    lines = [Line(reached, "Progress")] if reached else []
    pace = [f"{format_count(progress.samples_per_second)} samples/s"] if progress.samples_per_second else []
    if shown.eta:
        pace.append(f"{shown.eta} left")
    if not status.finished and progress.last_step_time is not None:
        pace.append(f"last step {ago(progress.last_step_time, now)} ago")
    if pace and not status.finished:
        lines.append(Line(", ".join(pace), "Pace"))
    if progress.last_checkpoint_step is not None:
        lines.append(Line(f"step {progress.last_checkpoint_step}", "Checkpoint"))
    return lines


def _failure(job: Job, failure: Failure) -> list[Line]:
    where = [f"rank {failure.rank}" if failure.rank is not None else "", failure.pod or "", failure.node_name or ""]
    attempt = f"attempt {failure.attempt}" if failure.attempt is not None else ""
    place = ", ".join(part for part in (*where, attempt) if part)
    label = "Root cause" if job.status.finished else "Last failure"
    tone = Tone.BAD if job.status.finished else Tone.WARN
    return [
        *block(label, f"{failure.failure_class or failure.reason}: {failure.message}", tone),
        *([Line(place, "Where", tone)] if place else []),
        Line(f"ddpjob why {job.name} -n {job.namespace}", "More", Tone.DIM),
    ]


def status_json(job: Job) -> dict[str, Any]:
    """The same for programs: the API's own names, and what identifies the job."""
    status, spec = job.status, job.record.spec
    wire = status.to_wire()
    reported = ("phase", "attempt", "conditions", "nodes", "restarts", "progress", "slowest", "failure")
    kept = (*reported, "startTime", "completionTime")
    return {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.record.uid,
        "finished": status.finished,
        "waitsFor": waiting_for(status) or None,
        "nodesAskedFor": spec.nodes if spec is not None else None,
        **{key: wire.get(key) for key in kept},
    }


_COLUMNS: Final = tuple(column for column in COLUMNS if not column.wide)
TABLE_HEAD: Final = ("NAMESPACE", "NAME", *(column.name.upper() for column in _COLUMNS))


def job_row(job: Job, now: datetime) -> tuple[str, ...]:
    """The cells of a job in a table, as `TABLE_HEAD` names them."""
    spec = job.record.spec
    fields = {
        "metadata": {"creationTimestamp": format_time(job.created) if job.created is not None else None},
        "spec": spec.to_wire() if spec is not None else {},
        "status": job.status.to_wire(),
    }
    return (job.namespace, job.name, *(_cell(column, fields, now) for column in _COLUMNS))


def _cell(column: Column, fields: Mapping[str, Any], now: datetime) -> str:
    value = column.value(fields)
    if column.type == "date":
        return ago(parse_time(value), now)
    return "" if value is None else str(value)
