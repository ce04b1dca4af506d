"""Follows a job to its end: one live line on a terminal, a line per change elsewhere."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ddpjob.cli.output import STYLES, console, plain, say
from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import follow
from ddpjob.cluster.log_streams import stream
from ddpjob.cluster.logs import Source, as_shown, ranks_of
from ddpjob.views.exit_codes import ExitCode
from ddpjob.views.job import Job
from ddpjob.views.outcome import outcome_lines
from ddpjob.views.progress import is_news, percent, progress_line
from ddpjob.views.text import tone_of
from ddpjob_core.api.errors import ApiError
from ddpjob_core.api.names import pod_name
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.api.text import printable_line

_SILENT_SECONDS: Final = 30.0
"""For how long the log of a job that has ended may bring nothing before its end is no longer waited for."""
_BAR_WIDTH: Final = 24


def follow_to_end(cluster: Cluster, job: Job, *, logs: Console | None) -> tuple[ExitCode, Job]:
    """Follow a job until it has ended or the user stops watching.

    Args:
        cluster: where.
        job: which.
        logs: where to show the output of rank 0's node, None for nowhere.
    """
    # Progress goes to standard error: standard output has only the log, or the JSON.
    display = console(stderr=True)
    tail = Tail(cluster, display, logs) if logs is not None else None
    try:
        with _shown(display) as screen:
            for job in follow(cluster, job):  # noqa: B020, PLR1704 the same job, as it is now
                screen.show(job.status)
                if tail is not None:
                    tail.see(job)
                if job.status.finished:
                    break
            if tail is not None:
                tail.finish(job)
    except KeyboardInterrupt:
        say(
            f"{job.name} keeps running; ddpjob status {job.name} -n {job.namespace} shows it, "
            f"ddpjob suspend {job.name} -n {job.namespace} stops it, "
            f"ddpjob delete {job.name} -n {job.namespace} removes it"
        )
        return ExitCode.INTERRUPTED, job
    for line in outcome_lines(job):
        display.print(plain(line.text, STYLES[line.tone]))
    return (ExitCode.OK if job.status.phase is Phase.SUCCEEDED else ExitCode.FAILED), job


class _Screen(Protocol):
    def show(self, status: DDPJobStatus) -> None: ...


class _LiveLine:
    """One line that changes in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, status: DDPJobStatus) -> None:
        self._live.update(_bar(status), refresh=True)


class _Changes:
    """A line for each change worth reporting."""

    def __init__(self, display: Console) -> None:
        self._display = display
        self._last: DDPJobStatus | None = None

    def show(self, status: DDPJobStatus) -> None:
        if is_news(self._last, status):
            self._last = status
            self._display.print(plain(progress_line(status)))


@contextmanager
def _shown(display: Console) -> Iterator[_Screen]:
    if not display.is_terminal:
        yield _Changes(display)
        return
    with Live(console=display, auto_refresh=False) as live:
        yield _LiveLine(live)


def _bar(status: DDPJobStatus) -> RenderableType:
    line = Text(printable_line(progress_line(status)), STYLES[tone_of(status)], overflow="ellipsis", no_wrap=True)
    done = percent(status)
    if done is None:
        return line
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=100, completed=done, width=_BAR_WIDTH), line)
    return grid


class Tail:
    """The output of rank 0's node, one attempt after the other, printed above the live line."""

    def __init__(self, cluster: Cluster, display: Console, out: Console, news: threading.Event | None = None) -> None:
        """Args:
        cluster: where.
        display: the live line's.
        out: where to print.
        news: set at each line and at each end of a log.
        """
        self._cluster = cluster
        # On a terminal both share the screen, and the live line has to make room.
        self._out = display if display.is_terminal and out.is_terminal else out
        self._attempt: int | None = None
        self._stop = threading.Event()
        self._news = news or threading.Event()
        self._open: dict[str, int] = {}

    def see(self, job: Job) -> None:
        """Start with the current attempt, once it has pods."""
        status, spec = job.status, job.record.spec
        if spec is None or not status.pods_created or status.attempt == self._attempt:
            return
        self._attempt = status.attempt
        name = pod_name(job.name, status.attempt, 0, spec.most_nodes)
        source = Source(name, status.attempt, 0, ranks_of(0, status.procs_per_node or 1))
        self._open[source.pod] = status.attempt
        threading.Thread(target=self._print, args=(job, source), daemon=True).start()

    def finish(self, job: Job) -> None:
        """Let the last lines arrive, as long as any do."""
        while True:
            self._news.clear()
            left = dict(self._open)
            if not left:
                break
            if not self._news.wait(_SILENT_SECONDS):
                for pod, attempt in left.items():
                    say(
                        f"nothing more of the log of {pod} has come for {_SILENT_SECONDS:.0f} s: lines may be missing; "
                        f"ddpjob logs {job.name} -n {job.namespace} --attempt {attempt} --rank 0 shows it"
                    )
                break
        self._stop.set()

    def _print(self, job: Job, source: Source) -> None:
        try:
            for line in stream(self._cluster, job, source, self._stop):
                self._out.print(plain(as_shown(line.text)))
                self._news.set()
        except ApiError as error:
            say(f"cannot read the log of {source.pod}: {error}")
        finally:
            self._open.pop(source.pod, None)
            self._news.set()
