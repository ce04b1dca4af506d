"""Logs of a job's nodes as they are written: each line once, whatever interrupts the stream."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import follow, get_job
from ddpjob.cluster.logs import MOST_STREAMS, LogLine, Source, sources_of
from ddpjob.views.job import Job, pod_record, trainer_has_ended
from ddpjob_core.api.errors import ApiError, Forbidden, Invalid, NotFound, Unavailable, UsageProblem
from ddpjob_core.api.resources import PODS

_LOOK_AGAIN_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 4.0
_TRIES: Final = 10
"""Times in a row that nothing answers before a stream is given up: about half a minute."""
_Lines: TypeAlias = queue.SimpleQueue[LogLine | tuple[Source, ApiError | None]]
"""Lines, and for each source its end, with what prevented the rest of its log from being read."""


def sources_to_follow(
    cluster: Cluster,
    job: Job,
    *,
    attempt: int | None = None,
    rank: int | None = None,
    waiting: Callable[[], object] = lambda: None,
) -> list[Source]:
    """As `sources_of`, but the pods of the current attempt are waited for until all of them have been created.

    Args:
        cluster: where.
        job: whose pods they are.
        attempt: a number, or None for the current one.
        rank: a global rank, or None for all.
        waiting: called once if the pods have to be waited for.
    """
    told = False
    for current in follow(cluster, job):
        status = current.status
        if status.pods_created or status.finished or attempt not in (None, status.attempt):
            return sources_of(cluster, current, attempt=attempt, rank=rank)
        if not told:
            told = True
            waiting()
    raise AssertionError("unreachable")


def follow_logs(
    cluster: Cluster,
    job: Job,
    sources: Sequence[Source],
    *,
    tail: int | None = None,
    stop: threading.Event | None = None,
    missed: Callable[[Source, ApiError], object] = lambda _source, _error: None,
) -> Iterator[LogLine]:
    """What the nodes write, as it arrives, until all of them have ended. A pod that has not started is waited for.

    Args:
        cluster: where.
        job: whose pods they are.
        sources: its pods.
        tail: start with this many lines from the end of each.
        stop: ends it early when set.
        missed: called for a pod whose log cannot be read.

    Raises:
        UsageProblem: there are too many of them.
        ApiError: no log at all can be read.
    """
    if len(sources) > MOST_STREAMS:
        raise UsageProblem(
            f"cannot follow {len(sources)} nodes at the same time, only {MOST_STREAMS} or fewer",
            "choose one with --rank, or read them without --follow",
        )
    lines: _Lines = queue.SimpleQueue()
    stop = stop or threading.Event()
    for source in sources:
        # A daemon: a stream that is silent for hours must not prevent the program from ending.
        reader = stream(cluster, job, source, stop, tail=tail)
        threading.Thread(target=_pump, args=(source, reader, lines), daemon=True).start()
    left = len(sources)
    errors: list[ApiError] = []
    while left:
        item = lines.get()
        if isinstance(item, LogLine):
            yield item
            continue
        left -= 1
        source, error = item
        if error is not None:
            errors.append(error)
            missed(source, error)
    if errors and len(errors) == len(sources):
        raise errors[0]


def _pump(source: Source, reader: Iterator[LogLine], lines: _Lines) -> None:
    end: ApiError | None = None
    try:
        for line in reader:
            lines.put(line)
    except ApiError as error:
        end = error
    finally:
        lines.put((source, end))


@dataclass(frozen=True, slots=True)
class _Position:
    """How far a log has been read: the time of its last line, and how many lines of that time there were.

    `remark` is what the kubelet last said in the place of the container, such as why it has no log.
    """

    time: str = ""
    count: int = 0
    remark: str = ""

    def after(self, line: LogLine) -> "_Position":
        if not line.time:
            return replace(self, remark=line.text)
        return replace(self, time=line.time, count=self.count + 1 if line.time == self.time else 1)


def stream(
    cluster: Cluster, job: Job, source: Source, stop: threading.Event, *, tail: int | None = None
) -> Iterator[LogLine]:
    """The lines of one node, each once, from the start of its container until its end.

    A stream may end before the container does: at once while the pod has no node, or because a connection is closed.

    Raises:
        ApiError: the user may not read logs, or nothing answers.
    """
    read, wait, failures, ended = _Position(), _LOOK_AGAIN_SECONDS, 0, False
    while not stop.is_set():
        begun, silent = read, None
        try:
            for line in _lines_after(cluster, job, source, read, follow=not ended, tail=tail):
                read = read.after(line)
                yield line
        except Unavailable as error:
            silent = error
        except (NotFound, Invalid):
            # The kubelet does not know the pod yet or any longer, or the container has not started.
            pass
        if ended and silent is None:
            return
        # A node may be silent until its pod ends. The API server, and a node whose pod has ended, only for a while.
        was_written, lost = not ended, silent if ended else None
        try:
            ended = ended or _has_ended(cluster, job, source)
        except Unavailable as error:
            lost = error
        failures = failures + 1 if lost is not None else 0
        if lost is not None and failures >= _TRIES:
            raise lost
        if ended and was_written:
            # What was written between the end of the stream and that of the container.
            continue
        stop.wait(wait)
        wait = _LOOK_AGAIN_SECONDS if read != begun else min(2 * wait, _LONGEST_WAIT_SECONDS)


def _lines_after(
    cluster: Cluster, job: Job, source: Source, read: _Position, *, follow: bool, tail: int | None
) -> Iterator[LogLine]:
    """The lines of a log after a position. The server knows positions only in whole seconds."""
    known = read.count
    for raw in cluster.log(
        job.namespace, source.pod, follow=follow, tail=None if read.time else tail, since=read.time or None
    ):
        line = source.line(raw)
        if not line.time:
            if line.text != read.remark:
                yield line
        elif line.time == read.time and known:
            known -= 1
        elif line.time >= read.time:
            yield line


def _has_ended(cluster: Cluster, job: Job, source: Source) -> bool:
    """Whether nothing more will be written to a log.

    Raises:
        Unavailable: nothing answers.
    """
    if _attempt_is_over(cluster, job, source):
        return True
    try:
        found = cluster.find(PODS, job.namespace, fields=f"metadata.name={source.pod}")
    except Forbidden:
        # Who may not list pods still sees the end of the attempt.
        return False
    return all(pod is None or trainer_has_ended(pod) for pod in map(pod_record, found))


def _attempt_is_over(cluster: Cluster, job: Job, source: Source) -> bool:
    try:
        current = get_job(cluster, job.name, job.namespace)
    except Unavailable:
        raise
    except ApiError:
        return True
    gone = current.record.uid != job.record.uid or current.status.attempt != source.attempt
    return gone or current.status.finished
