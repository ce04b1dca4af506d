"""Logs of a job's nodes, merged by time."""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import pods_of
from ddpjob.views.job import Job, PodRecord
from ddpjob_core.api.errors import ApiError, Invalid, NotFound
from ddpjob_core.api.names import pod_name
from ddpjob_core.api.text import printable_line

MOST_STREAMS: Final = 64
"""Logs that are read at the same time: each is a connection."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\S+")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the processes of a node wrote: `time` in RFC 3339, `ranks` of the processes that share the log.

    What the kubelet says in place of the log has the time "".
    """

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
        """A line of the log from a line of `Cluster.log`; no time if the kubelet itself says something."""
        time, _, text = raw.partition(" ")
        if not _TIME.fullmatch(time):
            time, text = "", raw
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
    if len(sources) > MOST_STREAMS:
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


def stacks_of(job: Job, *, attempt: int | None = None, rank: int | None = None) -> list[LogLine]:
    """Where ranks whose pods are gone were in the last stall, as lines of their logs without a time.

    Args:
        job: whose status has kept the stacks.
        attempt: a number, or None for the current one.
        rank: a global rank, or None for all.
    """
    status = job.status
    chosen, spec = status.attempt if attempt is None else attempt, job.record.spec
    nodes = 1 if spec is None else spec.most_nodes
    return [
        LogLine("", pod_name(job.name, chosen, stack.ordinal, nodes), chosen, stack.ordinal, str(stack.rank), text)
        for stack in status.stacks or ()
        if stack.attempt == chosen and rank in (None, stack.rank)
        for text in stack.text.splitlines()
    ]


def as_shown(text: str) -> str:
    """A line of a log as a terminal shows it, without what would act on the terminal.

    A progress bar writes its line again and again, with carriage returns in between: the last state is shown.
    """
    return printable_line(next((part for part in reversed(text.split("\r")) if part.strip()), ""))


def labelled(line: LogLine, pods: int) -> str:
    """The line as text, prefixed with its pod and ranks if there are several pods."""
    text = as_shown(line.text)
    who = "ranks" if "-" in line.ranks else "rank"
    return f"[{line.pod} {who} {line.ranks}] {text}" if pods > 1 else text
