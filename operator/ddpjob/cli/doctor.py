"""`ddpjob doctor [NAME]`."""

from dataclasses import asdict
from datetime import UTC, datetime

import typer

from ddpjob.cli.options import Context, Format, Kubeconfig, Namespace, OptionalJobName, Output, connect
from ddpjob.cli.output import print_json, print_lines
from ddpjob.cluster.examination import examine_installation, examine_job
from ddpjob.cluster.jobs import get_job
from ddpjob.views.checks import Outcome, check_lines
from ddpjob.views.exit_codes import ExitCode


def doctor(
    *,
    name: OptionalJobName = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Check the installation, or with a name what blocks a job. Each check prints OK, FAIL with a remedy, or SKIP."""
    cluster = connect(namespace, context, kubeconfig)
    if name is None:
        checks = examine_installation(cluster)
    else:
        checks = examine_job(cluster, get_job(cluster, name), datetime.now(UTC))
    if output is Format.JSON:
        print_json([asdict(check) for check in checks])
    else:
        print_lines(check_lines(checks))
    failed = [check for check in checks if check.outcome is Outcome.FAIL]
    if failed:
        # A single check means that the API server does not answer.
        raise typer.Exit(ExitCode.CLUSTER if name is None and len(checks) == 1 else ExitCode.FAILED)
