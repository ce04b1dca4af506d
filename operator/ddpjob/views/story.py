"""`ddpjob why`: what happened to a job, its root cause, and what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from ddpjob.views.advice import advice, advice_without_failure, class_of, meaning
from ddpjob.views.job import Job, JobEvent
from ddpjob.views.progress import waiting_for
from ddpjob.views.slowest import slowest_rank, what_slows
from ddpjob.views.text import Line, Tone, ago, block, tone_of, traceback_lines, without
from ddpjob_core.api.base import format_time
from ddpjob_core.api.display import format_seconds
from ddpjob_core.api.spec import Backend
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Failure, Phase
from ddpjob_core.observations.observed import PodRecord

_ENDS: Final = (
    ConditionType.TRAINING_STALLED,
    ConditionType.SUSPENDED,
    ConditionType.SUCCEEDED,
    ConditionType.SEPARATE_GROUPS,
    ConditionType.FAILED,
)
_HINT_OF_WAITING: Final = "ddpjob doctor {name} -n {namespace} checks what blocks it"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Something that happened to the job."""

    time: datetime | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to a job.

    `verdict` is one sentence, `chapters` what happened in order, `to_do` what a user can do, `logs` the commands that
    show the output of the processes. `failure` is the root cause if something failed.
    """

    verdict: str
    tone: Tone
    phase: Phase
    chapters: tuple[Chapter, ...]
    failure: Failure | None
    what_it_is: str
    to_do: tuple[str, ...]
    logs: tuple[str, ...]


def story_of(job: Job, events: Sequence[JobEvent], pods: Sequence[PodRecord], now: datetime) -> Story:
    """The story of a job.

    Args:
        job: as it is now.
        events: of the job, oldest first; the API server forgets them after a while.
        pods: those that still exist.
        now: wall clock.
    """
    status = job.status
    failed = status.condition(ConditionType.FAILED)
    failed_reason = failed.reason if failed is not None and failed.status == "True" else ""
    failure = status.failure
    if failure is not None:
        to_do = advice(failure, failed_reason, gpus=_asks_for_gpus(job))
    else:
        to_do = advice_without_failure(failed_reason)
    if not status.finished and waiting_for(status) and status.phase is not Phase.SUSPENDED:
        to_do.append(_HINT_OF_WAITING.format(name=job.name, namespace=job.namespace))
    if status.slowest is not None:
        to_do.append(what_slows(status))
    return Story(
        verdict=_verdict(job, now),
        tone=tone_of(status) if status.phase is not Phase.PENDING else Tone.WARN,
        phase=status.phase,
        chapters=tuple(_chapters(status, events)),
        failure=failure,
        what_it_is=meaning(failure) if failure is not None else "",
        to_do=tuple(to_do),
        logs=tuple(_logs(job, failure, pods)),
    )


def _asks_for_gpus(job: Job) -> bool | None:
    """Whether a job requests GPUs, by what its backend resolved to; None if that was set and not resolved."""
    resolved = job.status.backend
    if resolved == Backend.NCCL:
        return True
    automatic = job.record.spec is not None and job.record.spec.backend is Backend.AUTO
    return False if automatic and resolved == Backend.GLOO else None


def _verdict(job: Job, now: datetime) -> str:
    status, name = job.status, job.name
    tries = f" in attempt {status.attempt}" if status.attempt else ""
    if status.holds(ConditionType.SUCCEEDED):
        restarts = status.restarts.counted + status.restarts.ignored
        after = f", after {restarts} restart{'s' if restarts != 1 else ''}" if restarts else ""
        apart = ", but not as one training" if status.holds(ConditionType.SEPARATE_GROUPS) else ""
        return f"{name} has succeeded{tries}{after}{apart}"
    failed = status.condition(ConditionType.FAILED)
    if failed is not None and failed.status == "True":
        return f"{name} has failed{tries}: {failed.reason}"
    waits = waiting_for(status)
    if status.phase is Phase.RUNNING:
        said = "; ".join(part for part in (waits, slowest_rank(status)) if part)
        return f"{name} is running{tries}" + (f": {said}" if said else "")
    age = ago(job.created, now)
    return (
        f"{name} is {status.phase.value}{tries}"
        + (f": {waits}" if waits else "")
        + (f" (created {age} ago)" if age else "")
    )


def _chapters(status: DDPJobStatus, events: Sequence[JobEvent]) -> list[Chapter]:
    chapters = [Chapter(event.time, event.reason, event.message) for event in events]
    known = {chapter.reason for chapter in chapters}
    if status.start_time is not None and "PodsCreated" not in known:
        chapters.append(Chapter(status.start_time, "PodsCreated", "the first pods were created"))
    restarts = status.restarts
    if restarts.last_time is not None and "Restarting" not in known:
        count = restarts.counted + restarts.ignored
        earlier = f", the last of {count}" if count > 1 else ""
        chapters.append(Chapter(restarts.last_time, "Restarting", f"after {restarts.last_reason}{earlier}"))
    for kind in _ENDS:
        condition = status.condition(kind)
        if condition is None or condition.status != "True" or known & {kind.value, condition.reason}:
            continue
        chapters.append(Chapter(condition.last_transition_time, condition.reason, condition.message))
    return sorted(chapters, key=lambda chapter: chapter.time.timestamp() if chapter.time else 0.0)


def _logs(job: Job, failure: Failure | None, pods: Sequence[PodRecord]) -> list[str]:
    there = {pod.name for pod in pods}
    commands = []
    kept = failure is not None and any(
        (stack.attempt, stack.rank) == (failure.attempt, failure.rank) for stack in job.status.stacks or ()
    )
    if failure is not None and (kept or failure.pod in there) and failure.attempt is not None:
        rank = f" --rank {failure.rank}" if failure.rank is not None else ""
        commands.append(f"ddpjob logs {job.name} -n {job.namespace} --attempt {failure.attempt}{rank}")
    if any(pod.attempt == job.status.attempt for pod in pods):
        whole = f"ddpjob logs {job.name} -n {job.namespace}"
        commands.append(whole)
    return commands


def story_lines(story: Story) -> list[Line]:
    """The story as lines."""
    lines = [Line(story.verdict, "", story.tone, full=True)]
    if story.failure is not None:
        lines += [Line(""), *_cause_lines(story)]
    if story.to_do:
        lines.append(Line(""))
        lines += [Line(text, "What to do" if index == 0 else "") for index, text in enumerate(story.to_do)]
    if story.chapters:
        said = story.failure.message if story.failure is not None else ""
        lines += [Line(""), Line("What happened", "", Tone.TITLE, full=True), *_chapter_lines(story.chapters, said)]
    if story.logs:
        lines.append(Line(""))
        lines += [Line(text, "Logs" if index == 0 else "", Tone.DIM) for index, text in enumerate(story.logs)]
    return lines


def _cause_lines(story: Story) -> list[Line]:
    failure = story.failure
    if failure is None:
        return []
    tone = Tone.BAD if story.phase is Phase.FAILED else Tone.WARN
    known = class_of(failure)
    title = known.value if known is not None else failure.reason
    what = f"{title}: {story.what_it_is}" if story.what_it_is else title
    who = (
        f"rank {failure.rank}" if failure.rank is not None else "",
        f"pod {failure.pod}" if failure.pod else "",
        f"node {failure.node_name}" if failure.node_name else "",
        f"attempt {failure.attempt}" if failure.attempt is not None else "",
    )
    ends = (f"exit code {failure.exit_code}" if failure.exit_code is not None else "", failure.signal or "")
    lines = [Line(what, "Root cause", tone), *block("Message", failure.message, tone)]
    lines.append(Line(", ".join(part for part in who if part), "Where"))
    if any(ends):
        lines.append(Line(", ".join(part for part in ends if part), "Ended with"))
    if failure.traceback:
        lines += block("Traceback", "\n".join(traceback_lines(failure.traceback, failure.message)))
    if failure.consequences:
        lines += block("Consequences", "\n".join(failure.consequences), Tone.DIM)
    return lines


def _chapter_lines(chapters: Sequence[Chapter], said: str) -> list[Line]:
    """The chapters, without the message of the root cause, which has been shown."""
    known = [chapter.time for chapter in chapters if chapter.time is not None]
    first = min(known) if known else None
    lines = []
    for chapter in chapters:
        since = int((chapter.time - first).total_seconds()) if chapter.time is not None and first is not None else 0
        message = without(chapter.message, said, "the root cause above")
        lines.append(Line(f"{chapter.reason}: {message}", f"+{format_seconds(since)}"))
    return lines


def story_json(job: Job, story: Story) -> dict[str, Any]:
    """The story for programs."""
    return {
        "namespace": job.namespace,
        "name": job.name,
        "phase": story.phase.value,
        "verdict": story.verdict,
        "rootCause": story.failure.to_wire() if story.failure is not None else None,
        "whatItIs": story.what_it_is or None,
        "toDo": list(story.to_do),
        "events": [
            {**asdict(chapter), "time": format_time(chapter.time) if chapter.time is not None else None}
            for chapter in story.chapters
        ],
        "logs": list(story.logs),
    }
