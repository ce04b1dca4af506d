"""The one line that shows how a followed job is doing."""

from ddpjob_core.api.display import format_count
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Phase
from ddpjob_core.observations.progress import current_progress

_TENTH = 10
# Conditions that say what a job waits for, the most important first.
_WAITS = (
    ConditionType.TRAINING_STALLED,
    ConditionType.SUSPENDED,
    ConditionType.RESIZING,
    ConditionType.PODS_SCHEDULED,
    ConditionType.RENDEZVOUS_READY,
    ConditionType.TRAINING,
)


def progress_line(status: DDPJobStatus) -> str:
    """Phase, nodes, and what the training reports or waits for."""
    parts = [shown_phase(status)]
    if status.nodes is not None:
        parts.append(f"{status.nodes.ready + status.nodes.succeeded}/{status.nodes.desired} nodes")
    if status.attempt:
        parts.append(f"attempt {status.attempt}")
    numbers = _numbers(status)
    waits = "" if numbers and status.phase is Phase.RUNNING else waiting_for(status)
    return "  ".join([*parts, *numbers, *([waits] if waits else [])])


def shown_phase(status: DDPJobStatus) -> str:
    """The phase as a person is to see it."""
    return status.state or status.phase.value


def _numbers(status: DDPJobStatus) -> list[str]:
    if status.progress is None:
        return []
    progress, shown = current_progress(status), status.summary
    named = (
        ("epoch", shown.epoch),
        ("step", shown.step),
        ("", f"{progress.percent}%" if progress.percent is not None else ""),
        ("loss", shown.loss),
        ("", _speed(progress.samples_per_second) if status.phase is Phase.RUNNING else ""),
    )
    left = [f"{shown.eta} left"] if shown.eta else []
    return [f"{name} {text}".strip() for name, text in named if text] + left


def _speed(samples: float | None) -> str:
    return "" if samples is None else f"{format_count(samples)} samples/s"


def waiting_for(status: DDPJobStatus) -> str:
    """What the job waits for according to its conditions, "" if nothing is known to be wrong."""
    if status.finished:
        return ""
    left_alone = status.condition(ConditionType.UNREADABLE)
    if left_alone is not None and left_alone.status == "True":
        return left_alone.message
    for kind in _WAITS:
        condition = status.condition(kind)
        if condition is None:
            continue
        if kind in (ConditionType.TRAINING_STALLED, ConditionType.RESIZING):
            if condition.status == "True":
                return condition.message
        elif kind is ConditionType.SUSPENDED:
            if condition.status == "True" or condition.reason == "Stopping":
                return condition.message
        elif condition.status != "True":
            return condition.message
    return "" if status.conditions else "the operator has not seen it yet"


def percent(status: DDPJobStatus) -> int | None:
    """How many percent of the steps are done, None if that is not known."""
    return current_progress(status).percent


def is_news(old: DDPJobStatus | None, new: DDPJobStatus) -> bool:
    """Whether a new status deserves its own line in output that is not overwritten, such as a file.

    It does if the phase, the attempt or the reason to wait has changed, and for every tenth of the training.
    """
    if old is None or (old.phase, old.attempt) != (new.phase, new.attempt):
        return True
    if waiting_for(old) != waiting_for(new):
        return True
    return _tenth(old) != _tenth(new)


def _tenth(status: DDPJobStatus) -> int | None:
    done = percent(status)
    return None if done is None else done // _TENTH
