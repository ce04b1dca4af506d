"""`ddpjob suspend`, `resume` and `scale`."""

from typing import Annotated

import typer

from ddpjob.cli.options import Context, Format, JobName, Kubeconfig, Namespace, Output, connect
from ddpjob.cli.output import print_json, say
from ddpjob.cluster.jobs import get_job, set_nodes, set_suspend, until
from ddpjob.views.job import Job
from ddpjob.views.status import status_json
from ddpjob_core.api.constants import MAX_NODES
from ddpjob_core.api.status import ConditionType


def suspend(
    *,
    name: JobName,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all pods have stopped.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Stop a job without failing it: its ranks save and exit, and it has no pods until it is resumed."""
    cluster = connect(namespace, context, kubeconfig)
    job = set_suspend(cluster, get_job(cluster, name), suspend=True)
    if wait:
        job = until(cluster, job, lambda now: now.status.finished or now.status.holds(ConditionType.SUSPENDED))
    state = "suspended" if wait else "being suspended"
    _print(job, f"{name} is {state}; ddpjob resume {name} continues it{_from_where(job)}", output)


def resume(
    *,
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Resume a suspended job, from its last checkpoint if it has one."""
    cluster = connect(namespace, context, kubeconfig)
    job = set_suspend(cluster, get_job(cluster, name), suspend=False)
    _print(job, f"{name} is resuming{_from_where(job)}; ddpjob status {name} shows its progress", output)


def _from_where(job: Job) -> str:
    spec = job.record.spec
    has_checkpoint = spec is not None and spec.checkpoint is not None
    return "" if has_checkpoint else " from the beginning, because it has no spec.checkpoint"


def scale(
    *,
    name: JobName,
    nodes: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="New number of nodes.")],
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Change the number of nodes of a job with spec.elastic while it trains, or of any job that is suspended."""
    cluster = connect(namespace, context, kubeconfig)
    job = set_nodes(cluster, get_job(cluster, name), nodes)
    spec = job.record.spec
    later = f"; ddpjob resume {name} starts them" if spec is not None and spec.suspend else ""
    if spec is not None and spec.elastic is not None and not spec.suspend:
        later = f"; ddpjob status {name} shows when it trains on {'it' if nodes == 1 else 'them'}"
    _print(job, f"{name} now asks for {nodes} node{'s' if nodes != 1 else ''}{later}", output)


def _print(job: Job, text: str, output: Format) -> None:
    if output is Format.JSON:
        print_json(status_json(job))
    else:
        say(text)
