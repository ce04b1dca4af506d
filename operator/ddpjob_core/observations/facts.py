"""The few values of a job's status that are counted or shown for all jobs at once."""

from dataclasses import dataclass

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.active_time import active_since


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the metrics say of a job: times in seconds since the epoch, None where a value is not known."""

    phase: str
    attempt: int
    restarts: tuple[int, int, int]
    """Counted ones, ignored ones and those of processes."""
    failure_class: str | None
    stalled: bool
    nodes: tuple[int, int] | None
    """Desired and ready ones."""
    start: float | None
    step: int | None
    total_steps: int | None
    loss: float | None
    last_step: float | None
    slowest: tuple[int, str, str, float] | None
    """The rank that slows down the others: its number, its Kubernetes node, what it does, and how many times as long as
    they do it takes."""


def facts_of(status: DDPJobStatus) -> JobFacts:
    """What a status says."""
    restarts, nodes, progress, failure = status.restarts, status.nodes, status.progress, status.failure
    slowest = status.slowest
    start, last_step = active_since(status), progress.last_step_time if progress is not None else None
    return JobFacts(
        phase=status.phase.value,
        attempt=status.attempt,
        restarts=(restarts.counted, restarts.ignored, restarts.process),
        failure_class=failure.failure_class if failure is not None else None,
        stalled=status.holds(ConditionType.TRAINING_STALLED) and not status.finished,
        nodes=(nodes.desired, nodes.ready) if nodes is not None else None,
        start=start.timestamp() if start is not None else None,
        step=progress.step if progress is not None else None,
        total_steps=progress.total_steps if progress is not None else None,
        loss=progress.loss if progress is not None else None,
        last_step=last_step.timestamp() if last_step is not None else None,
        slowest=None if slowest is None else (slowest.rank, slowest.node_name or "", slowest.what, slowest.factor),
    )
