"""The documents of a file as a job for this machine: the DDPJob, and the ConfigMaps in the same file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddpjob.local.errors import LocalError
from ddpjob.local.host_paths import check_host_paths
from ddpjob.manifests.documents import Document, checked_job
from ddpjob.manifests.names import check_namespace
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.ssh_key import needs_ssh_key
from ddpjob_core.observations.observed import JobRecord

_LEFT_OUT: Final = ("elastic",)
"""Nobody asks one machine for another size."""


@dataclass(frozen=True, slots=True)
class LocalManifest:
    """A DDPJob as given, and the data of the ConfigMaps in the same file, by name.

    `left_out` are fields of the spec that mean nothing on one machine and are not part of the job.
    """

    job: dict[str, Any]
    spec: DDPJobSpec
    config_maps: Mapping[str, Mapping[str, str]]
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return str(self.job["metadata"]["namespace"])

    def config_maps_for(self, job: JobRecord) -> Mapping[str, Mapping[str, str]]:
        """Data of all ConfigMaps that the pods of the job refer to: the launcher's as well."""
        launcher = build_launcher(job, self.spec)
        return {**self.config_maps, launcher["metadata"]["name"]: launcher["data"]}


def local_manifest(
    documents: Sequence[Document], namespace: str | None = None, host_paths: Sequence[Path] = ()
) -> LocalManifest:
    """The one DDPJob among the documents, checked as far as possible without a cluster.

    Args:
        documents: of a file.
        namespace: of a job that does not name one; `default` where it is left out.
        host_paths: folders and files of this machine that its volumes may be.

    Raises:
        UsageProblem: there is not exactly one, or something is wrong with it.
        LocalError: it cannot run on one machine.
    """
    document = checked_job(documents)
    # It becomes the name of a folder, as the job's name does, which has been checked.
    given = document.content["metadata"].get("namespace")
    where = given if given is not None else "default" if namespace is None else namespace
    check_namespace(where, "namespace")
    metadata = {**document.content["metadata"], "namespace": where, "generation": 1}
    given_fields = document.content["spec"]
    fields = {key: value for key, value in given_fields.items() if key not in _LEFT_OUT}
    left_out = tuple(f"spec.{key}" for key in given_fields if key in _LEFT_OUT)
    # As it is read back later: an unfinished job is found again by its spec.
    job = json.loads(json.dumps({**document.content, "metadata": metadata, "spec": fields}, default=str))
    config_maps = {
        each.name: {key: str(value) for key, value in (each.content.get("data") or {}).items()}
        for each in documents
        if each.kind == "ConfigMap"
    }
    spec = DDPJobSpec.model_validate(job["spec"])
    check_host_paths(spec.template, host_paths)
    if needs_ssh_key(spec):
        processes = spec.procs_per_node if isinstance(spec.procs_per_node, int) else 1
        raise LocalError(
            "spec.nodes: mpirun reaches other nodes by ssh, which nodes on one machine do not have: "
            f"use nodes: 1 and procsPerNode: {spec.nodes * processes} here, or another launcher"
        )
    return LocalManifest(job, spec, config_maps, left_out)
