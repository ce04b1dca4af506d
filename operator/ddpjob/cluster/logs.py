"""Logs of a job's nodes, merged in the order in which they were written."""

import heapq
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import get_job, pods_of
from ddpjob.errors import ClusterError, Invalid, NotFound, UsageProblem
from ddpjob.jobs import Job
from ddpjob.observed import PodRecord

MOST_FOLLOWED: Final = 64
"""Streams that are followed at once: each is a connection and a thread."""
_LOOK_AGAIN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a node's processes wrote: `time` as RFC 3339, `ranks` those that write into this log."""

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
        """A line of the log, as `Cluster.log` gives it."""
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
    """The pods whose logs are meant.

    Args:
        job: name, for messages.
        pods: all of the job that are there.
        current: number of the current attempt.
        processes: on each node.
        attempt: a number, or None for the newest that has pods.
        rank: a global rank, or None for all.

    Raises:
        NotFound: no such pod is there; the message says which attempts have some.
    """
    known = sorted({pod.attempt for pod in pods if pod.attempt is not None})
    if not known:
        raise NotFound(f"{job} has no pods, so there is no log", f"ddpjob status {job} says what it waits for")
    chosen = attempt if attempt is not None else (current if current in known else known[-1])
    if chosen not in known:
        raise NotFound(
            f"{job} has no pods of attempt {chosen} any more",
            f"attempts with pods: {', '.join(map(str, known))}; of failed ones the last three are kept",
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


def read_logs(cluster: Cluster, namespace: str, sources: Sequence[Source], *, tail: int | None = None) -> list[LogLine]:
    """What the nodes have written so far, merged by time. A pod that has not started has written nothing."""
    return list(
        heapq.merge(*(_read(cluster, namespace, source, tail) for source in sources), key=lambda line: line.time)
    )


def _read(cluster: Cluster, namespace: str, source: Source, tail: int | None) -> list[LogLine]:
    try:
        return [source.line(raw) for raw in cluster.log(namespace, source.pod, tail=tail)]
    except Invalid:
        # The container has not started.
        return []


def follow_logs(
    cluster: Cluster, job: Job, sources: Sequence[Source], *, stop: threading.Event | None = None
) -> Iterator[LogLine]:
    """What the nodes write, as it comes, until all of them have ended.

    Args:
        cluster: where.
        job: whose pods they are.
        sources: its pods.
        stop: ends it early when set.

    Raises:
        UsageProblem: there are too many of them.
    """
    if len(sources) > MOST_FOLLOWED:
        raise UsageProblem(
            f"{len(sources)} nodes cannot be followed at once, {MOST_FOLLOWED} can",
            "choose one with --rank, or read them without --follow",
        )
    lines: queue.SimpleQueue[LogLine | None] = queue.SimpleQueue()
    stop = stop or threading.Event()
    for source in sources:
        # A daemon: a stream that is silent for hours must not keep the program from ending.
        threading.Thread(target=_pump, args=(cluster, job, source, lines, stop), daemon=True).start()
    left = len(sources)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            yield line


def _pump(
    cluster: Cluster, job: Job, source: Source, lines: "queue.SimpleQueue[LogLine | None]", stop: threading.Event
) -> None:
    try:
        for line in stream(cluster, job, source, stop):
            lines.put(line)
    finally:
        lines.put(None)


def stream(cluster: Cluster, job: Job, source: Source, stop: threading.Event) -> Iterator[LogLine]:
    """The lines of one node until its container has ended; waits until it has started."""
    newest = ""
    while not stop.is_set():
        # After a break the log begins anew.
        known = newest
        try:
            for raw in cluster.log(job.namespace, source.pod, follow=True):
                line = source.line(raw)
                if line.time > known:
                    newest = line.time
                    yield line
        except NotFound:
            return
        except ClusterError:
            # It has not started, or the stream broke.
            if _is_over(cluster, job, source):
                return
        else:
            return
        stop.wait(_LOOK_AGAIN_SECONDS)


def _is_over(cluster: Cluster, job: Job, source: Source) -> bool:
    try:
        current = get_job(cluster, job.name, job.namespace)
    except ClusterError:
        return True
    gone = current.record.uid != job.record.uid or current.status.attempt != source.attempt
    return gone or current.status.finished


def sources_of(cluster: Cluster, job: Job, *, attempt: int | None = None, rank: int | None = None) -> list[Source]:
    """The pods of a job whose logs are meant, see `choose_sources`."""
    status = job.status
    return choose_sources(
        job.name,
        pods_of(cluster, job),
        current=status.attempt,
        processes=status.procs_per_node or 1,
        attempt=attempt,
        rank=rank,
    )


def merged(lines: Iterable[LogLine], pods: int) -> Iterator[str]:
    """The lines as text, each after its pod and ranks where there are several pods."""
    for line in lines:
        who = "ranks" if "-" in line.ranks else "rank"
        yield f"[{line.pod} {who} {line.ranks}] {line.text}" if pods > 1 else line.text
