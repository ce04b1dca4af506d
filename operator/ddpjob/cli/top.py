"""`ddpjob top`: all jobs, live."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live

from ddpjob.cli.options import AllNamespaces, Context, Format, Kubeconfig, Namespace, Output, connect
from ddpjob.cli.output import STYLES, console, plain, print_json, table
from ddpjob.cluster.jobs import list_jobs
from ddpjob.views.job import Job
from ddpjob.views.sparkline import LossHistory
from ddpjob.views.status import TABLE_HEAD, job_row, status_json
from ddpjob.views.text import Tone
from ddpjob_core.api.errors import Unavailable


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the table once.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between two updates.")] = 2.0,
    all_namespaces: AllNamespaces = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Show all jobs as a live table, with a graph of their losses since its start. Ctrl-C exits."""
    cluster = connect(namespace, context, kubeconfig)
    where = None if all_namespaces else cluster.namespace
    jobs = list_jobs(cluster, where)
    out = console()
    if output is Format.JSON:
        print_json([status_json(job) for job in jobs])
        return
    history = LossHistory()
    history.see(jobs)
    if once or not out.is_terminal:
        out.print(_screen(jobs, history, datetime.now(UTC), named=all_namespaces))
        return
    with Live(console=out, screen=True, auto_refresh=False) as live:
        problem = ""
        while True:
            live.update(_screen(jobs, history, datetime.now(UTC), named=all_namespaces, problem=problem), refresh=True)
            time.sleep(interval)
            try:
                jobs, problem = list_jobs(cluster, where), ""
                history.see(jobs)
            except Unavailable as error:
                # The last state is more useful than an empty screen.
                problem = str(error)


def _screen(jobs: list[Job], history: LossHistory, now: datetime, *, named: bool, problem: str = "") -> RenderableType:
    first = 0 if named else 1
    head = (*TABLE_HEAD[first:], "LOSS HISTORY")
    rows = ((*job_row(job, now)[first:], history.line(job)) for job in jobs)
    problems = [plain(problem, STYLES[Tone.BAD])] if problem else []
    return Group(table(head, rows), *problems)
