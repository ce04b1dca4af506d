"""`ddpjob status [NAME]`."""

from datetime import UTC, datetime

from ddpjob.cli.options import AllNamespaces, Context, Format, Kubeconfig, Namespace, OptionalJobName, Output, connect
from ddpjob.cli.output import console, print_json, print_lines, table
from ddpjob.cluster.jobs import get_job, list_jobs
from ddpjob.views.status import TABLE_HEAD, job_row, status_json, status_lines


def status(
    *,
    name: OptionalJobName = None,
    all_namespaces: AllNamespaces = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Show a job: phase, what it waits for, nodes, restarts, progress, failure. Without a name: all jobs."""
    cluster = connect(namespace, context, kubeconfig)
    now = datetime.now(UTC)
    if name is not None:
        job = get_job(cluster, name)
        if output is Format.JSON:
            print_json(status_json(job))
        else:
            print_lines(status_lines(job, now))
        return
    where = None if all_namespaces else cluster.namespace
    jobs = list_jobs(cluster, where)
    if output is Format.JSON:
        print_json([status_json(job) for job in jobs])
    elif jobs:
        first = 0 if all_namespaces else 1
        console().print(table(TABLE_HEAD[first:], (job_row(job, now)[first:] for job in jobs)))
    else:
        console(stderr=True).print(f"no DDPJobs in {where or 'any namespace'}")
