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
    wait: Annotated[bool, typer.Option("--wait", help="Return when all its pods have stopped.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Stop a job without failing it: its ranks save and leave, and no pods are made until it is resumed."""
    cluster = connect(namespace, context, kubeconfig)
    job = set_suspend(cluster, get_job(cluster, name), suspend=True)
    if wait:
        job = until(cluster, job, lambda now: now.status.finished or now.status.holds(ConditionType.SUSPENDED))
    stops = f"{name} is {'suspended' if wait else 'being suspended'}"
    _tell(job, f"{stops}; ddpjob resume {name} {_when_resumed(job)}", output)


def resume(
    *,
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Let a suspended job go on, from its last checkpoint where it has one."""
    cluster = connect(namespace, context, kubeconfig)
    job = set_suspend(cluster, get_job(cluster, name), suspend=False)
    _tell(job, f"{name} {_when_resumed(job)}; ddpjob status {name} shows how it fares", output)


def _when_resumed(job: Job) -> str:
    spec = job.record.spec
    return "goes on" if spec is not None and spec.checkpoint else "starts anew, since it has no spec.checkpoint"


def scale(
    *,
    name: JobName,
    nodes: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="Number of nodes from now on.")],
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Change a job's number of nodes, which it allows while it is suspended."""
    cluster = connect(namespace, context, kubeconfig)
    job = set_nodes(cluster, get_job(cluster, name), nodes)
    spec = job.record.spec
    later = f"; ddpjob resume {name} starts them" if spec is not None and spec.suspend else ""
    _tell(job, f"{name} has {nodes} node{'s' if nodes != 1 else ''} from now on{later}", output)


def _tell(job: Job, text: str, output: Format) -> None:
    if output is Format.JSON:
        print_json(status_json(job))
    else:
        say(text)
