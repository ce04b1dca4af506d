"""Logs of a job's nodes, merged by time."""

import heapq
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import get_job, pods_of
from ddpjob.views.job import Job, PodRecord
from ddpjob_core.api.errors import ApiError, Invalid, NotFound, UsageProblem

MOST_FOLLOWED: Final = 64
"""Streams that are followed at the same time: each is a connection and a thread."""
_LOOK_AGAIN_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the processes of a node wrote: `time` in RFC 3339, `ranks` of the processes that share the log."""

    time: str
    pod: str
    attempt: int
    ordinal: int
    ranks: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A pod whose log is read."""

    pod: str
    attempt: int
    ordinal: int
    ranks: str

    def line(self, raw: str) -> LogLine:
        """A line of the log from a line of `Cluster.log`."""
        time, _, text = raw.partition(" ")
        return LogLine(time, self.pod, self.attempt, self.ordinal, self.ranks, text)


def ranks_of(ordinal: int, processes: int) -> str:
    """The global ranks on a node: "3", or "2-3"."""
    first = ordinal * processes
    return str(first) if processes == 1 else f"{first}-{first + processes - 1}"


def choose_sources(
    job: str,
    pods: Sequence[PodRecord],
    *,
    current: int,
    processes: int,
    attempt: int | None = None,
    rank: int | None = None,
) -> list[Source]:
    """The pods whose logs to read.

    Args:
        job: name, for messages.
        pods: those of the job that exist.
        current: number of the current attempt.
        processes: per node.
        attempt: a number, or None for the newest attempt that has pods.
        rank: a global rank, or None for all.

    Raises:
        NotFound: there is no such pod; the message says which attempts have pods.
    """
    known = sorted({pod.attempt for pod in pods if pod.attempt is not None})
    if not known:
        raise NotFound(f"{job} has no pods, so there is no log", f"ddpjob status {job} shows what it waits for")
    chosen = attempt if attempt is not None else (current if current in known else known[-1])
    if chosen not in known:
        raise NotFound(
            f"{job} no longer has pods of attempt {chosen}",
            f"attempts with pods: {', '.join(map(str, known))}; those of the last three failed attempts are kept",
        )
    sources = [
        Source(pod.name, chosen, pod.ordinal, ranks_of(pod.ordinal, processes))
        for pod in pods
        if pod.attempt == chosen and pod.ordinal is not None
    ]
    if rank is None:
        return sources
    wanted = [source for source in sources if source.ordinal == rank // processes]
    if not wanted:
        there = ", ".join(source.ranks for source in sources)
        raise NotFound(f"attempt {chosen} of {job} has no pod with rank {rank}", f"ranks with a log: {there}")
    return wanted


def read_logs(
    cluster: Cluster,
    namespace: str,
    sources: Sequence[Source],
    *,
    tail: int | None = None,
    missed: Callable[[Source, ApiError], object] = lambda _source, _error: None,
) -> Iterator[LogLine]:
    """What the nodes have written so far, merged by time. A pod that has not started has no log.

    Args:
        cluster: where.
        namespace: of the pods.
        sources: the pods.
        tail: only this many lines from the end of each.
        missed: called for a pod whose log cannot be read, for example because its node is lost.

    Raises:
        ApiError: no log at all can be read.
    """
    errors: list[ApiError] = []

    def miss(source: Source, error: ApiError) -> None:
        errors.append(error)
        missed(source, error)

    readers: Iterable[Iterable[LogLine]] = (_read(cluster, namespace, source, tail, miss) for source in sources)
    if len(sources) > MOST_FOLLOWED:
        # One after the other: merged as streams, each would hold a connection.
        readers = [list(reader) for reader in readers]
    yield from heapq.merge(*readers, key=lambda line: line.time)
    if errors and len(errors) == len(sources):
        raise errors[0]


def _read(
    cluster: Cluster,
    namespace: str,
    source: Source,
    tail: int | None,
    miss: Callable[[Source, ApiError], object],
) -> Iterator[LogLine]:
    try:
        for raw in cluster.log(namespace, source.pod, tail=tail):
            yield source.line(raw)
    except Invalid:
        # The container has not started.
        return
    except ApiError as error:
        miss(source, error)


def follow_logs(
    cluster: Cluster,
    job: Job,
    sources: Sequence[Source],
    *,
    tail: int | None = None,
    stop: threading.Event | None = None,
) -> Iterator[LogLine]:
    """What the nodes write, as it arrives, until all of them have ended.

    Args:
        cluster: where.
        job: whose pods they are.
        sources: its pods.
        tail: start with this many lines from the end of each.
        stop: ends it early when set.

    Raises:
        UsageProblem: there are too many of them.
    """
    if len(sources) > MOST_FOLLOWED:
        raise UsageProblem(
            f"cannot follow {len(sources)} nodes at the same time, only {MOST_FOLLOWED} or fewer",
            "choose one with --rank, or read them without --follow",
        )
    lines: queue.SimpleQueue[LogLine | None] = queue.SimpleQueue()
    stop = stop or threading.Event()
    for source in sources:
        # A daemon: a stream that is silent for hours must not prevent the program from ending.
        reader = stream(cluster, job, source, stop, tail=tail)
        threading.Thread(target=_pump, args=(reader, lines), daemon=True).start()
    left = len(sources)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            yield line


def _pump(reader: Iterable[LogLine], lines: "queue.SimpleQueue[LogLine | None]") -> None:
    try:
        for line in reader:
            lines.put(line)
    finally:
        lines.put(None)


def stream(
    cluster: Cluster, job: Job, source: Source, stop: threading.Event, *, tail: int | None = None
) -> Iterator[LogLine]:
    """The lines of one node, from the start of its container until its end."""
    newest, wait = "", _LOOK_AGAIN_SECONDS
    while not stop.is_set():
        # After an interruption the log starts again.
        known = newest
        try:
            for raw in cluster.log(job.namespace, source.pod, follow=True, tail=None if newest else tail):
                line = source.line(raw)
                if line.time > known:
                    newest = line.time
                    yield line
        except NotFound:
            return
        except ApiError:
            # The container has not started, or the stream was interrupted.
            if _is_over(cluster, job, source):
                return
        else:
            return
        stop.wait(wait)
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def _is_over(cluster: Cluster, job: Job, source: Source) -> bool:
    try:
        current = get_job(cluster, job.name, job.namespace)
    except ApiError:
        return True
    gone = current.record.uid != job.record.uid or current.status.attempt != source.attempt
    return gone or current.status.finished


def sources_of(cluster: Cluster, job: Job, *, attempt: int | None = None, rank: int | None = None) -> list[Source]:
    """The pods of a job whose logs to read, see `choose_sources`."""
    status = job.status
    return choose_sources(
        job.name,
        pods_of(cluster, job),
        current=status.attempt,
        processes=status.procs_per_node or 1,
        attempt=attempt,
        rank=rank,
    )


def labelled(line: LogLine, pods: int) -> str:
    """The line as text, prefixed with its pod and ranks if there are several pods."""
    who = "ranks" if "-" in line.ranks else "rank"
    return f"[{line.pod} {who} {line.ranks}] {line.text}" if pods > 1 else line.text
