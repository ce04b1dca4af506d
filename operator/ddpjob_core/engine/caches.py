"""All objects that the watches and the answers to writes have shown, and how they are found again."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from ddpjob_core.api.kubernetes import Manifest, ObjectName
from ddpjob_core.api.names import network_policy_name
from ddpjob_core.api.network_policy import KIND as NETWORK_POLICY
from ddpjob_core.api.network_policy import content_of
from ddpjob_core.api.template import on_host_network, template_errors
from ddpjob_core.children.host_network import ports_in_common, ports_of
from ddpjob_core.children.processes import processes_of
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observe import network_policy_record, pod_record, service_record
from ddpjob_core.observations.observed import JobRecord, NetworkPolicyRecord, PodRecord, ServiceRecord

Child: TypeAlias = PodRecord | ServiceRecord | NetworkPolicyRecord
"""What a watch shows of a job's objects."""


def groups_of(record: Child) -> tuple[str, ...]:
    """The groups of a child: its owner, and the job that its label names."""
    owner = (_owner_group(record.namespace, record.owner_uid),) if record.owner_uid else ()
    return (*owner, _name_group(record.namespace, record.job)) if record.job else owner


@dataclass(frozen=True, slots=True)
class Caches:
    """The objects that the operator follows."""

    jobs: Store[JobRecord]
    pods: Store[PodRecord]
    services: Store[ServiceRecord]
    network_policies: Store[NetworkPolicyRecord] = field(default_factory=lambda: Store(groups=groups_of))

    def foreign(self, job: JobRecord) -> dict[ObjectName, str]:
        """Objects with names of this job's own that are not its own, mapped to their owners, "" for none."""
        found = {
            ObjectName("Pod", pod.name): _owner(pod)
            for pod in self.pods.group(_name_group(job.namespace, job.name))
            if pod.owner_uid != job.uid
        }
        service = self.services.get(job.namespace, job.name)
        if service is not None and service.owner_uid != job.uid:
            found[ObjectName("Service", service.name)] = _owner(service)
        policy = self.network_policies.get(job.namespace, network_policy_name(job.name))
        if policy is not None and policy.owner_uid != job.uid:
            found[ObjectName(NETWORK_POLICY, policy.name)] = _owner(policy)
        return found

    def pods_of(self, job: JobRecord) -> tuple[PodRecord, ...]:
        """The job's own pods, of all attempts."""
        return self.pods.group(_owner_group(job.namespace, job.uid))

    def count_pods(self, namespace: str, uid: str) -> int:
        """How many pods the job with this uid has in its namespace."""
        return self.pods.count(_owner_group(namespace, uid))

    def own(self, job: JobRecord) -> set[ObjectName]:
        """The job's own pods and its service, as far as they exist."""
        found = {ObjectName("Pod", pod.name) for pod in self.pods_of(job)}
        return found | {ObjectName("Service", job.name)} if self.service(job) is not None else found

    def holds(self, job: JobRecord, manifest: Manifest) -> bool:
        """Whether the job's own object of this kind and name is cached, and a NetworkPolicy says the same."""
        if manifest["kind"] == "Service":
            return self.service(job) is not None
        if manifest["kind"] == NETWORK_POLICY:
            policy = self.network_policy(job)
            return policy is not None and policy.content == content_of(manifest["spec"])
        return manifest["kind"] == "Pod" and self.holds_pod(job, manifest["metadata"]["name"])

    def holds_pod(self, job: JobRecord, name: str) -> bool:
        """Whether the job's own pod of this name is cached."""
        pod = self.pods.get(job.namespace, name)
        return pod is not None and pod.owner_uid == job.uid

    def remember(self, kind: str, raw: object) -> None:
        """Keep the answer to the creation or the change of an object that a watch shows."""
        pod = pod_record(raw) if kind == "Pod" else None
        if pod is not None:
            self.pods.remember(pod)
        service = service_record(raw) if kind == "Service" else None
        if service is not None:
            self.services.remember(service)
        policy = network_policy_record(raw) if kind == NETWORK_POLICY else None
        if policy is not None:
            self.network_policies.remember(policy)

    def port_rivals(self, job: JobRecord) -> dict[str, dict[str, range]]:
        """Jobs of the same namespace on the host network whose pods have ports that a pod of this job waits for.

        Jobs of other namespaces are not named: a user who may see this job may not be allowed to see them.
        """
        ours = _host_ports(job)
        if not ours or not any(pod.obstacle for pod in self.pods_of(job)):
            return {}
        others = (other for other in self.jobs if other.namespace == job.namespace and other.uid != job.uid)
        with_nodes = (self.jobs.get(other.namespace, other.name) for other in others if _has_nodes(self.pods_of(other)))
        holders = {other.name: _host_ports(other) for other in with_nodes if other is not None}
        return {name: holders[name] for name in sorted(holders) if ports_in_common(ours, holders[name])}

    def service(self, job: JobRecord) -> ServiceRecord | None:
        """The job's own service. One that is being deleted is none: it will be gone, with the names of the pods."""
        found = self.services.get(job.namespace, job.name)
        return found if found is not None and _is_own(found, job) else None

    def network_policy(self, job: JobRecord) -> NetworkPolicyRecord | None:
        """The job's own NetworkPolicy. One that is being deleted is none."""
        found = self.network_policies.get(job.namespace, network_policy_name(job.name))
        return found if found is not None and _is_own(found, job) else None


def _owner_group(namespace: str, uid: str) -> str:
    """The group of all objects with this controller.

    An object of another namespace can name any uid as its controller's. It is never the job's.
    """
    return f"uid/{namespace}/{uid}"


def _name_group(namespace: str, job: str) -> str:
    """The group of all objects labelled with a job's name, whichever job of that name they belong to."""
    return f"name/{namespace}/{job}"


def _host_ports(job: JobRecord) -> dict[str, range]:
    if job.spec is None or not on_host_network(job.spec.template) or template_errors(job.spec.template):
        return {}
    return ports_of(job.spec, processes_of(job.spec))


def _has_nodes(pods: Iterable[PodRecord]) -> bool:
    return any(pod.node_name is not None and pod.phase not in ("Succeeded", "Failed") for pod in pods)


def _is_own(record: ServiceRecord | NetworkPolicyRecord, job: JobRecord) -> bool:
    return record.owner_uid == job.uid and record.deletion_time is None


def _owner(record: Child) -> str:
    return f"DDPJob {record.job} (uid {record.owner_uid})" if record.owner_uid else ""
