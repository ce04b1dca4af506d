"""Options that several commands share, spelled as in kubectl."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ddpjob.manifests.names import check_job_name, check_namespace
from ddpjob_core.api.errors import DDPJobError

if TYPE_CHECKING:
    from ddpjob.cluster.client import Cluster


class Format(StrEnum):
    """Output formats of a command."""

    TEXT = "text"
    JSON = "json"


class ManifestFormat(StrEnum):
    """Output formats of manifests."""

    YAML = "yaml"
    JSON = "json"


def spelled(parameter: Any, *, off: bool = False) -> str:  # noqa: ANN401 typer has moved the class
    """A parameter as a person types it.

    Args:
        parameter: of a command.
        off: the spelling that switches it off, if it has one.
    """
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).partition(" ")[0].strip("[].")
    return str((parameter.secondary_opts if off and parameter.secondary_opts else parameter.opts)[0])


def check_names(parameter: typer.CallbackParam, given: Any) -> Any:  # noqa: ANN401 whatever the parameter is
    """A callback that checks the names of jobs or of a namespace.

    Raises:
        UsageProblem: a name is not valid.
    """
    check = check_namespace if parameter.name == "namespace" else check_job_name
    for name in [given] if isinstance(given, str) else given or ():
        check(name, spelled(parameter))
    return given


Namespace: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace. Default: that of the kubeconfig's context.",
        callback=check_names,
    ),
]
ManifestNamespace: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        callback=check_names,
        help="Namespace to write into the manifest. Default: none.",
    ),
]
Context: TypeAlias = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Kubeconfig: TypeAlias = Annotated[
    str | None,
    typer.Option("--kubeconfig", help="Kubeconfig file. Default: $KUBECONFIG, else ~/.kube/config."),
]
Output: TypeAlias = Annotated[Format, typer.Option("--output", "-o", help="text for people, json for programs.")]
AllNamespaces: TypeAlias = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Show the jobs of all namespaces.")
]
JobFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--filename", "-f", help="Manifest with one DDPJob; - reads standard input.", show_default=False),
]


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs for the shell's completion; none if no cluster answers."""
    from ddpjob.cluster.jobs import list_jobs  # noqa: PLC0415 as in connect

    given = ctx.params
    try:
        cluster = connect(given.get("namespace"), given.get("context"), given.get("kubeconfig"))
        return [job.name for job in list_jobs(cluster, cluster.namespace) if job.name.startswith(incomplete)]
    except DDPJobError:
        return []


def connect(namespace: str | None, context: str | None, kubeconfig: str | None) -> "Cluster":
    """The cluster that the options name."""
    # Importing the client takes a moment; help, completion and render do not need it.
    from ddpjob.cluster.connection import Target, open_cluster  # noqa: PLC0415

    return open_cluster(Target(namespace, context, kubeconfig))


def job_argument(metavar: str, text: str) -> Any:  # noqa: ANN401 what typer makes of it
    """The argument that names one DDPJob or several: completed from the cluster, and checked.

    Args:
        metavar: its name in the usage line.
        text: its help.
    """
    return typer.Argument(
        metavar=metavar, help=text, show_default=False, autocompletion=complete_name, callback=check_names
    )


JobName: TypeAlias = Annotated[str, job_argument("NAME", "Name of the DDPJob.")]
OptionalJobName: TypeAlias = Annotated[str | None, job_argument("[NAME]", "Name of a DDPJob.")]
