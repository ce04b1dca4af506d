"""The NetworkPolicy of a job: who may connect to its pods.

The ports of a training ask for no password, and torch unpickles what it finds in the store of the rendezvous: anyone
who reaches that runs code in the job. The selectors are labels, which anyone who may create pods in the namespace can
give to a pod, so the boundary that holds is the namespace.
"""

from collections.abc import Iterable
from typing import Any, Final

from ddpjob_core.api.constants import LABEL_UID
from ddpjob_core.api.kubernetes import Manifest, object_name
from ddpjob_core.api.names import network_policy_name
from ddpjob_core.api.network_policy import KIND, Isolation, content_of
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.processes import processes_of
from ddpjob_core.children.template import merge_trainer, trainer_of
from ddpjob_core.observations.observed import JobRecord
from ddpjob_core.observations.situation import Situation

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label by which the API server says the name of a namespace; no one can give it to another one."""
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_LARGEST_PORT: Final = 65535


def build_network_policy(job: JobRecord, spec: DDPJobSpec, isolation: Isolation) -> Manifest:
    """The policy's manifest. Expects a template without errors.

    The job's own pods reach each other on any port: gloo, NCCL and Open MPI choose theirs as they like. Ports that the
    trainer declares are for its namespace, those of metrics for the operator and for Prometheus. Each port is a rule of
    its own: network plugins that know no ranges would allow the first of a range alone.
    """
    metrics = range(spec.metrics.port, spec.metrics.port + processes_of(spec))
    own = {"podSelector": {"matchLabels": {LABEL_UID: job.uid}}}
    readers = [{"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: name}}} for name in isolation.metrics_namespaces]
    declared = _declared_ports(spec)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": KIND,
        "metadata": child_metadata(job, network_policy_name(job.name)),
        "spec": {
            # By the uid: those of former attempts, which are kept for their logs, are protected too.
            "podSelector": {"matchLabels": {LABEL_UID: job.uid}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [own]},
                {"from": readers, "ports": [_port(number) for number in metrics]},
                *([{"from": [{"podSelector": {}}], "ports": declared}] if declared else []),
            ],
        },
    }


def needed_network_policy(situation: Situation) -> Manifest | None:
    """The policy's manifest where it has to be created or put right; None where it is there, or is not wanted."""
    if situation.isolated_by is None:
        return None
    manifest = build_network_policy(situation.job, situation.spec, situation.isolated_by)
    found, name = situation.observed.network_policy, object_name(manifest)
    refused = any(each.object == name for each in situation.observed.rejections)
    same = found is not None and found.content == content_of(manifest["spec"])
    return None if same and not refused else manifest


def _declared_ports(spec: DDPJobSpec) -> list[dict[str, Any]]:
    """The ports that the trainer declares, except that of the rendezvous, where mpirun has its sshd as well.

    What sidecars declare says what an image serves, not who may connect: `spec.trainer.ports` opens their ports too.
    """
    trainer = merge_trainer(trainer_of(spec.template), spec.trainer)
    found = {_declared(port) for port in _items(trainer.get("ports"))}
    reserved = {(spec.rendezvous.port, "TCP")}
    return [_port(*each) for each in sorted({each for each in found if each is not None} - reserved)]


def _items(value: object) -> Iterable[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _declared(port: dict[str, Any]) -> tuple[int, str] | None:
    """Number and protocol, None where the API server will refuse the pod for them."""
    number, protocol = port.get("containerPort"), port.get("protocol") or "TCP"
    valid = isinstance(number, int) and not isinstance(number, bool) and 0 < number <= _LARGEST_PORT
    return (number, protocol) if isinstance(number, int) and valid and protocol in _PROTOCOLS else None


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": number, "protocol": protocol}
