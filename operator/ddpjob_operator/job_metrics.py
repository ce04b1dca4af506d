"""Metrics of each job, written from the cache at each scrape: their series end with the job.

Tens of thousands of jobs have hundreds of thousands of series, so these are written in parts: what sends them lets
others use the event loop in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from prometheus_client.utils import floatToGoString

from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.engine.resting import facts_about
from ddpjob_core.observations.facts import JobFacts
from ddpjob_core.observations.observed import JobRecord

RESTART_KINDS: Final = ("counted", "ignored", "process")
_PREFIX: Final = "ddpjob_operator_job"
_AT_ONCE: Final = 250
"""Jobs in one part: a millisecond or two."""

T = TypeVar("T")
Sample: TypeAlias = tuple[str, float]
"""Further labels, such as `,kind="counted"`, and the value."""


def restarts_of(status: DDPJobStatus) -> Mapping[str, int]:
    """How often the job has been restarted, by kind."""
    restarts = status.restarts
    return dict(zip(RESTART_KINDS, (restarts.counted, restarts.ignored, restarts.process), strict=True))


def job_metrics(jobs: Iterable[JobRecord]) -> Iterator[bytes]:
    """What the status of each job says, for alerts and for dashboards of trainings that are not scraped.

    Args:
        jobs: all jobs.

    Yields:
        Parts of a text in Prometheus' format, some of them empty.
    """
    # As they are now: records do not change, and a family must not lack a job that the next one has.
    # Two lists: thousands of new pairs would make the garbage collector go through everything.
    labels: list[str] = []
    known: list[JobFacts] = []
    for some in _parts(tuple(jobs)):
        labels += [f'{{ddpjob="{job.name}",namespace="{job.namespace}"' for job in some]
        known += [facts_about(job) for job in some]
        yield b""
    for family in _FAMILIES:
        name = f"{_PREFIX}_{family.name}"
        yield f"# HELP {name} {family.text}\n# TYPE {name} {family.kind}\n".encode()
        for whose, part in zip(_parts(labels), _parts(known), strict=True):
            yield "".join(
                f"{name}{job}{more}}} {_text(value)}\n"
                for job, facts in zip(whose, part, strict=True)
                for more, value in family.samples(facts)
            ).encode()


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[begin : begin + _AT_ONCE] for begin in range(0, len(items), _AT_ONCE))


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    text: str
    samples: Callable[[JobFacts], Iterable[Sample]]
    kind: str = "gauge"


def _text(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _one(value: float | None) -> tuple[Sample, ...]:
    return () if value is None else (("", value),)


def _failure(facts: JobFacts) -> tuple[Sample, ...]:
    return () if facts.failure_class is None else ((f',class="{facts.failure_class}"', 1),)


def _nodes(facts: JobFacts) -> tuple[Sample, ...]:
    return () if facts.nodes is None else tuple(zip(_NODE_STATES, facts.nodes, strict=True))


def _slowest(facts: JobFacts) -> tuple[Sample, ...]:
    if facts.slowest is None:
        return ()
    rank, node, what, factor = facts.slowest
    # Kubernetes has no such names of nodes, but a status can be written by others than the operator.
    node = node.replace("\\", "").replace('"', "")
    return ((f',node="{node}",rank="{rank}",what="{what}"', factor),)


def _ratio(facts: JobFacts) -> tuple[Sample, ...]:
    if facts.step is None or not facts.total_steps:
        return ()
    return _one(min(1.0, facts.step / facts.total_steps))


_KINDS: Final = tuple(f',kind="{kind}"' for kind in RESTART_KINDS)
_NODE_STATES: Final = (',state="desired"', ',state="ready"')
_FAMILIES: Final = (
    _Family("phase", "Always 1; the label is the job's phase.", lambda facts: ((f',phase="{facts.phase}"', 1),)),
    _Family("attempt", "Number of the job's current attempt, from 0.", lambda facts: _one(facts.attempt)),
    _Family(
        "restarts_total",
        "Restarts: of all pods (counted or ignored), or of the worker processes in running pods (process).",
        lambda facts: zip(_KINDS, facts.restarts, strict=True),
        kind="counter",
    ),
    _Family(
        "failure",
        "Always 1, from the first failure until the job succeeds; the label is the class of the last failure.",
        _failure,
    ),
    _Family(
        "stalled",
        "1 while no step has been completed for longer than spec.progressDeadline, else 0.",
        lambda facts: _one(facts.stalled),
    ),
    _Family("nodes", "Pods of the attempt: desired, and ready (their program is running).", _nodes),
    _Family("step", "Completed optimizer steps, once reported.", lambda facts: _one(facts.step)),
    _Family(
        "planned_steps",
        "Optimizer steps planned for the whole training, once reported.",
        lambda facts: _one(facts.total_steps),
    ),
    _Family("progress_ratio", "Fraction of the planned steps completed, from 0 to 1.", _ratio),
    _Family("loss", "The last reported training loss.", lambda facts: _one(facts.loss)),
    _Family(
        "last_step_timestamp_seconds",
        "When the last step ended, by the clock of rank 0.",
        lambda facts: _one(facts.last_step),
    ),
    _Family(
        "slowest_rank_factor",
        "How many times as long as the others the rank takes that slows them down, while there is one.",
        _slowest,
    ),
    _Family(
        "start_timestamp_seconds",
        "When the job started or was last resumed.",
        lambda facts: _one(facts.start),
    ),
)
