"""`ddpjob logs NAME`."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from ddpjob.cli.options import Context, Format, JobName, Kubeconfig, Namespace, Output, connect
from ddpjob.cli.output import as_json, say
from ddpjob.cluster.jobs import get_job
from ddpjob.cluster.log_streams import follow_logs, sources_to_follow
from ddpjob.cluster.logs import LogLine, Source, labelled, read_logs, sources_of, stacks_of
from ddpjob_core.api.errors import ApiError, NotFound


def logs(
    *,
    name: JobName,
    rank: Annotated[int | None, typer.Option(min=0, help="Only the node on which this global rank runs.")] = None,
    attempt: Annotated[int | None, typer.Option(min=0, help="An earlier attempt whose pods are kept.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for the pods, and continue until the attempt ends.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Only this many lines from the end of each node's log.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the output of all nodes, merged by time, each line prefixed with its pod and the ranks on it.

    The processes of a node share one log: --rank selects the node of that rank. With -o json, each line is an object.
    The pods of an attempt that stalled are gone: of its ranks, the stacks are printed that the status has kept.
    """
    cluster = connect(namespace, context, kubeconfig)
    job = get_job(cluster, name)
    if follow:
        sources = sources_to_follow(
            cluster, job, attempt=attempt, rank=rank, waiting=lambda: say(f"waiting for the pods of {name}")
        )
        lines = follow_logs(cluster, job, sources, tail=tail, missed=_report)
    else:
        try:
            sources = sources_of(cluster, job, attempt=attempt, rank=rank)
        except NotFound:
            stacks = stacks_of(job, attempt=attempt, rank=rank)
            if not stacks:
                raise
            say("the pods are gone, and their logs with them; this is where they were when the training had stalled:")
            _print(stacks, len(stacks), output)
            return
        lines = read_logs(cluster, job.namespace, sources, tail=tail, missed=_report)
    if not _print(lines, len(sources), output):
        say("there is no output yet")


def _report(source: Source, error: ApiError) -> None:
    say(f"cannot read the log of {source.pod}: {error}")


def _print(lines: Iterable[LogLine], pods: int, output: Format) -> int:
    """Print the lines, and return their number."""
    count = 0
    for line in lines:
        count += 1
        if output is Format.JSON:
            typer.echo(as_json(asdict(line)))
        else:
            typer.echo(labelled(line, pods))
    return count
