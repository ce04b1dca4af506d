"""`ddpjob logs NAME`."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from ddpjob.cli.options import Context, Format, JobName, Kubeconfig, Namespace, Output, connect
from ddpjob.cluster.jobs import get_job
from ddpjob.cluster.logs import LogLine, follow_logs, merged, read_logs, sources_of


def logs(
    *,
    name: JobName,
    rank: Annotated[int | None, typer.Option(min=0, help="Only the node on which this global rank runs.")] = None,
    attempt: Annotated[int | None, typer.Option(min=0, help="An earlier attempt whose pods are kept.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the attempt ends.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only so many lines from the end of each node.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """What the training wrote: all nodes merged by time, each line after its pod and the ranks on it.

    The processes of a node share one log: --rank chooses the node of that rank. With -o json each line is an object.
    """
    cluster = connect(namespace, context, kubeconfig)
    job = get_job(cluster, name)
    sources = sources_of(cluster, job, attempt=attempt, rank=rank)
    if follow:
        _print(follow_logs(cluster, job, sources), len(sources), output)
    else:
        _print(read_logs(cluster, job.namespace, sources, tail=tail), len(sources), output)


def _print(lines: Iterable[LogLine], pods: int, output: Format) -> None:
    if output is Format.JSON:
        for line in lines:
            typer.echo(json.dumps(asdict(line), ensure_ascii=False))
    else:
        for text in merged(lines, pods):
            typer.echo(text)
