"""`ddpjob doctor [NAME]`."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from ddpjob.cli.options import Context, Format, Kubeconfig, Namespace, OptionalJobName, Output, connect
from ddpjob.cli.output import print_json, print_lines
from ddpjob.cluster.examination import examine_installation, examine_job
from ddpjob.cluster.installation import examine_before_and_after
from ddpjob.cluster.jobs import get_job
from ddpjob.views.checks import Outcome, check_lines
from ddpjob.views.exit_codes import ExitCode
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.scope import Scope


def doctor(
    *,
    name: OptionalJobName = None,
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            help="Check what installing the operator takes, or how it is installed; with -n, for that namespace alone.",
        ),
    ] = False,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="With --install: also check for the Prometheus operator.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Check the installation, or with a name what blocks a job. Each check prints OK, FAIL with a remedy, or SKIP."""
    if install and name is not None:
        raise UsageProblem("--install checks a cluster, not a job", "leave the name out")
    if monitoring and not install:
        raise UsageProblem("--monitoring has no effect without --install", "add --install, or leave it out")
    cluster = connect(namespace, context, kubeconfig)
    if install:
        scope = Scope() if namespace is None else Scope.of(namespace)
        checks = examine_before_and_after(cluster, scope, monitoring=monitoring)
    elif name is None:
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
