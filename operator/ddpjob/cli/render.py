"""`ddpjob render`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ddpjob.cli.files import read_file
from ddpjob.cli.options import Context, Kubeconfig, ManifestFormat, Namespace, connect
from ddpjob.cli.output import manifests_json, manifests_text, say
from ddpjob.cluster.client import Cluster
from ddpjob.local.rendering import record_of, rendered
from ddpjob.manifests.documents import checked_job, named_namespace, placed
from ddpjob.views.exit_codes import ExitCode, exit_code
from ddpjob_core.api.errors import AlreadyExists, ApiError
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES

_RESOURCES = {
    "DDPJob": JOBS,
    "Service": SERVICES,
    "ConfigMap": CONFIG_MAPS,
    "PersistentVolumeClaim": CLAIMS,
    "Secret": SECRETS,
    "Pod": PODS,
}


class DryRun(StrEnum):
    """What validates the rendered objects."""

    CLIENT = "client"
    SERVER = "server"


def render(
    *,
    filename: Annotated[
        Path, typer.Option("--filename", "-f", help="Manifest with one DDPJob; - reads standard input.")
    ],
    dry_run: Annotated[
        DryRun,
        typer.Option("--dry-run", help="client: no cluster needed. server: the API server validates all objects."),
    ] = DryRun.CLIENT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Annotated[ManifestFormat, typer.Option("--output", "-o", help="Output format.")] = ManifestFormat.YAML,
) -> None:
    """Print the objects that the operator would create for a job, by its own code and without a cluster."""
    documents = read_file(filename)
    document = checked_job(documents)
    named = named_namespace(documents, namespace)
    cluster = connect(namespace, context, kubeconfig) if dry_run is DryRun.SERVER else None
    record = record_of(document, named or (cluster.namespace if cluster is not None else "default"))
    manifests = rendered(record, datetime.now(UTC))
    form = manifests_json if output is ManifestFormat.JSON else manifests_text
    typer.echo(form(manifests), nl=False)
    if cluster is not None and not accepted(cluster, [placed(document.content, record.namespace), *manifests]):
        raise typer.Exit(ExitCode.USAGE)


def accepted(cluster: Cluster, manifests: Sequence[dict[str, Any]]) -> bool:
    """Whether the API server would accept all objects; its answer for each is printed."""
    well = True
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        try:
            cluster.create(_RESOURCES[manifest["kind"]], manifest, dry_run=True)
        except AlreadyExists:
            say(f"{name}: already exists")
        except ApiError as error:
            if exit_code(error) is ExitCode.CLUSTER:
                raise
            well = False
            say(f"{name}: refused: {error}")
        else:
            say(f"{name}: accepted")
    return well
