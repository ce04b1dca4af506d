"""`ddpjob delete NAME...`."""

import sys
from typing import Annotated

import typer

from ddpjob.cli.options import Context, Kubeconfig, Namespace, connect, job_argument
from ddpjob.cli.output import say
from ddpjob.cluster.jobs import delete_job, get_job
from ddpjob.views.exit_codes import ExitCode
from ddpjob.views.job import Job
from ddpjob_core.api.checkpoint import Retain
from ddpjob_core.api.errors import UsageProblem


def delete(
    *,
    names: Annotated[list[str], job_argument("NAME...", "DDPJobs.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete jobs with their pods, services and ConfigMaps. Checkpoint claims are kept unless retain is Delete."""
    cluster = connect(namespace, context, kubeconfig)
    jobs = [get_job(cluster, name) for name in names]
    for job in jobs:
        say(describe(job))
    if not yes:
        if not sys.stdin.isatty():
            raise UsageProblem(
                "cannot ask for confirmation: standard input is not a terminal", "--yes deletes without asking"
            )
        if not typer.confirm("Delete?", err=True):
            raise typer.Exit(ExitCode.FAILED)
    for job in jobs:
        delete_job(cluster, job)
        say(f"deleted {job.namespace}/{job.name}")


def describe(job: Job) -> str:
    """What is deleted with a job, and what is kept."""
    spec = job.record.spec
    checkpoint = spec.checkpoint if spec is not None else None
    if checkpoint is None:
        kept = ""
    elif checkpoint.claim_name is not None:
        kept = f"; its checkpoints are kept in claim {checkpoint.claim_name}"
    elif checkpoint.retain is Retain.RETAIN:
        kept = f"; its checkpoints are kept in claim {job.name}-checkpoints: kubectl delete pvc removes them"
    else:
        kept = "; its checkpoints are deleted with it"
    return f"{job.namespace}/{job.name} is {job.status.phase.value}{kept}"
