"""A training pod: one node of the training."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ddpjob_core.api.constants import (
    ANNOTATION_MEMBERSHIP,
    ANNOTATION_SPEC_HASH,
    LABEL_UID,
    LAUNCHER_VOLUME,
    SSH_KEY_VOLUME,
)
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.membership import membership_text
from ddpjob_core.api.names import pod_name, service_name, spare_pod_name
from ddpjob_core.api.ownership import owner_reference
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import Membership
from ddpjob_core.children.affinity import apart_from, away_from
from ddpjob_core.children.checkpoint import VOLUME as CHECKPOINT_VOLUME
from ddpjob_core.children.checkpoint import WRITERS_GROUP, checkpoint_volume, is_mounted
from ddpjob_core.children.environment import (
    MEMBERSHIP_FILE,
    MEMBERSHIP_FOLDER,
    pod_environment,
    shared_environment,
    spare_environment,
)
from ddpjob_core.children.hashes import spec_hash
from ddpjob_core.children.host_network import host_network_fields
from ddpjob_core.children.metadata import pod_labels, spare_labels
from ddpjob_core.children.processes import resolve_procs_per_node
from ddpjob_core.children.restricted import is_restricted, pod_defaults, restricted_container
from ddpjob_core.children.shared import SharedNames, shared_names
from ddpjob_core.children.ssh_key import key_mount, key_volume, needs_ssh_key
from ddpjob_core.children.template import merge_trainer, others_of, trainer_of
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE

LAUNCHER_FOLDER: Final = "/ddpjob"
MEMBERSHIP_VOLUME: Final = "ddpjob-membership"
SHARED_MEMORY_VOLUME: Final = "ddpjob-shared-memory"
SHARED_MEMORY_SIZE: Final = "16Gi"
"""Of a pod whose trainer has no memory limit."""
SHARED_MEMORY_FOLDER: Final = "/dev/shm"  # noqa: S108 the path that torch's data loaders use
DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"


# Changed only if the volume's root differs: walking through a large volume at every start would take minutes.
_VOLUME_GROUP: Final = {"fsGroup": WRITERS_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}


def build_pod(
    job: JobRecord,
    spec: DDPJobSpec,
    attempt: int,
    ordinal: int,
    *,
    lost_nodes: Sequence[str] = (),
    membership: Membership | None = None,
    shared: SharedNames | None = None,
) -> Manifest:
    """The manifest of one pod, which prefers nodes other than `lost_nodes`.

    Expects a template without errors (`template_errors`).
    """
    return PodBuilder(job, spec, attempt, lost_nodes, membership, shared=shared).build(ordinal)


class PodBuilder:
    """Makes the manifests of an attempt's pods one by one. What is the same in all of them is made once."""

    def __init__(
        self,
        job: JobRecord,
        spec: DDPJobSpec,
        attempt: int,
        lost_nodes: Sequence[str] = (),
        membership: Membership | None = None,
        *,
        shared: SharedNames | None = None,
    ) -> None:
        """Args:
        job: whose pods they are.
        spec: the job's spec; its template has no errors (`template_errors`).
        attempt: number of the attempt.
        lost_nodes: nodes that the pods should rather not run on.
        membership: which nodes of an elastic job train together, None for other jobs.
        shared: names of what the pods mount; None for those where nobody else makes objects.
        """
        self._membership = {} if membership is None else {ANNOTATION_MEMBERSHIP: membership_text(membership)}
        self._member = (lambda _: 0) if membership is None else membership.member
        self._job = job
        self._spec = spec
        self._attempt = attempt
        self._lost_nodes = lost_nodes
        self._metadata = spec.template.get("metadata") or {}
        given = spec.template.get("spec") or {}
        # Null is what is left out. As a value it would take the place of ours, and mean the default of Kubernetes.
        template = copy.deepcopy({field: value for field, value in given.items() if value is not None})
        self._shared = shared_names(job, spec) if shared is None else shared
        self._trainer = _merged_trainer(job, spec, self._shared.launcher)
        self._others = others_of(spec.template)
        self._template = template
        if is_restricted(job.status):
            self._trainer = restricted_container(self._trainer, template)
            self._others = [restricted_container(each, template) for each in self._others]
            self._template = {**template, **pod_defaults(template, self._metadata.get("annotations") or {})}
        self._spec_hash = spec_hash(spec)

    def build(self, ordinal: int) -> Manifest:
        """The manifest of one pod. It shares parts with the others: it is to be sent, not to be changed."""
        job, spec, attempt = self._job, self._spec, self._attempt
        member = self._member(ordinal)
        own = pod_environment(job, spec, attempt, ordinal, member)
        name = pod_name(job.name, attempt, ordinal, spec.most_nodes, member)
        return self._pod(name, pod_labels(job, attempt, ordinal), own, first=ordinal == 0)

    def build_spare(self, number: int) -> Manifest:
        """The manifest of the pod of a spare node, which prefers a machine without other pods of its job."""
        job, attempt = self._job, self._attempt
        own = spare_environment(job, self._spec, attempt, number)
        name = spare_pod_name(job.name, attempt, number)
        pod = self._pod(name, spare_labels(job, number), own, first=False)
        apart = apart_from({LABEL_UID: job.uid}, pod["spec"].get("affinity"))
        return {**pod, "spec": {**pod["spec"], **apart}}

    def _pod(self, name: str, labels: dict[str, str], environment: dict[str, str], *, first: bool) -> Manifest:
        job, spec, template = self._job, self._spec, self._template
        container = _trainer_container(spec, environment, dict(self._trainer), first=first)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": job.namespace,
                "labels": {**(self._metadata.get("labels") or {}), **labels},
                "annotations": {
                    DEFAULT_CONTAINER_ANNOTATION: container["name"],
                    **(self._metadata.get("annotations") or {}),
                    ANNOTATION_SPEC_HASH: self._spec_hash,
                    **self._membership,
                },
                "ownerReferences": [owner_reference(job)],
            },
            "spec": {
                # A training does not need the API server: no credential in the pod unless it is requested.
                "automountServiceAccountToken": False,
                # A namespace with thousands of services would add as many variables to every container.
                "enableServiceLinks": False,
                **template,
                **host_network_fields(spec.template),
                **away_from(self._lost_nodes, template.get("affinity")),
                **_security_context(spec, template.get("securityContext") or {}),
                "hostname": name,
                "subdomain": service_name(job.name),
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": spec.grace_period_seconds,
                "containers": [container, *self._others],
                "volumes": _volumes(job, spec, self._shared, container, template.get("volumes") or []),
            },
        }


def _security_context(spec: DDPJobSpec, users: object) -> dict[str, Any]:
    if spec.checkpoint is None or not isinstance(users, dict):
        return {}
    return {"securityContext": {**_VOLUME_GROUP, **users}}


def _merged_trainer(job: JobRecord, spec: DDPJobSpec, launcher: str | None) -> dict[str, Any]:
    """The container of all pods alike: the user's fields, and the variables that the launcher's ConfigMap holds."""
    container = merge_trainer(trainer_of(spec.template), spec.trainer)
    if launcher is None:
        ours = _variables(shared_environment(job, spec))
        container["env"] = [*ours, *(container.get("env") or [])]
    else:
        # The last one wins.
        source = {"configMapRef": {"name": launcher}}
        container["envFrom"] = [*(container.get("envFrom") or []), source]
    return container


def _trainer_container(
    spec: DDPJobSpec, environment: Mapping[str, str], container: dict[str, Any], *, first: bool
) -> dict[str, Any]:
    processes = resolve_procs_per_node(spec.procs_per_node, container.get("resources") or {})
    if spec.trainer.command is None:
        container["command"] = ["python3", f"{LAUNCHER_FOLDER}/{FILE}"]
    else:
        container["command"] = list(spec.trainer.command)
    if spec.trainer.args:
        container["args"] = list(spec.trainer.args)
    # Ours come first: a user's variable may refer to them as $(DDPJOB_NODE_RANK).
    ours = _variables(environment)
    container["env"] = [*ours, *(container.get("env") or [])]
    container["ports"] = [*_ports(spec, processes), *(container.get("ports") or [])]
    container["volumeMounts"] = [*_mounts(spec, container, 0 if first else 1), *(container.get("volumeMounts") or [])]
    return container


def _variables(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _ports(spec: DDPJobSpec, processes: int) -> list[dict[str, Any]]:
    return [
        {"name": "rendezvous", "containerPort": spec.rendezvous.port, "protocol": "TCP"},
        *(
            {"name": f"metrics-{local_rank}", "containerPort": spec.metrics.port + local_rank, "protocol": "TCP"}
            for local_rank in range(processes)
        ),
    ]


def _mounts(spec: DDPJobSpec, container: dict[str, Any], ordinal: int) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = []
    if not _has_shared_memory(container):
        mounts.append({"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_FOLDER})
    if spec.trainer.command is None:
        mounts.append({"name": LAUNCHER_VOLUME, "mountPath": LAUNCHER_FOLDER, "readOnly": True})
    if spec.elastic is not None:
        mounts.append({"name": MEMBERSHIP_VOLUME, "mountPath": MEMBERSHIP_FOLDER, "readOnly": True})
    if needs_ssh_key(spec):
        mounts.append(key_mount())
    if spec.checkpoint is not None and is_mounted(spec.checkpoint, ordinal):
        mounts.append({"name": CHECKPOINT_VOLUME, "mountPath": spec.checkpoint.path})
    return mounts


def _volumes(
    job: JobRecord,
    spec: DDPJobSpec,
    shared: SharedNames,
    container: dict[str, Any],
    users: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    # A list: the name in a user's mount may be of any type, and the API server validates it.
    mounted = [mount.get("name") for mount in container["volumeMounts"]]
    ours: list[dict[str, Any]] = []
    if SHARED_MEMORY_VOLUME in mounted:
        # A container's own /dev/shm has 64 MiB, which is too little for a data loader with workers.
        ours.append(
            {"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _shared_size(container)}}
        )
    if LAUNCHER_VOLUME in mounted:
        ours.append(
            {"name": LAUNCHER_VOLUME, "configMap": {"name": shared.launcher, "items": [{"key": FILE, "path": FILE}]}}
        )
    if MEMBERSHIP_VOLUME in mounted:
        # The kubelet brings it up to date as soon as it sees the pod change, not only once a minute.
        field = {"fieldPath": f"metadata.annotations['{ANNOTATION_MEMBERSHIP}']"}
        ours.append(
            {"name": MEMBERSHIP_VOLUME, "downwardAPI": {"items": [{"path": MEMBERSHIP_FILE, "fieldRef": field}]}}
        )
    if SSH_KEY_VOLUME in mounted and shared.ssh_key is not None:
        ours.append(key_volume(shared.ssh_key))
    if spec.checkpoint is not None and CHECKPOINT_VOLUME in mounted:
        ours.append(checkpoint_volume(job, spec.checkpoint))
    return [*ours, *users]


def _shared_size(container: dict[str, Any]) -> str:
    # What is in it counts as memory of the container. Without any limit, one pod could take all memory of its node.
    limits = (container.get("resources") or {}).get("limits") or {}
    memory = limits.get("memory")
    return str(memory) if isinstance(memory, str | int) and not isinstance(memory, bool) else SHARED_MEMORY_SIZE


def _has_shared_memory(container: dict[str, Any]) -> bool:
    return any(mount.get("mountPath") == SHARED_MEMORY_FOLDER for mount in container.get("volumeMounts") or [])
