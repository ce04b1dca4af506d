"""All that the watches and the answers of writes tell, and how it is found again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ddpjob_core.api.template import template_errors
from ddpjob_core.children.host_network import on_host_network, ports_in_common, ports_of
from ddpjob_core.children.pod import processes_of
from ddpjob_core.engine.store import Store
from ddpjob_core.engine.vanished import Departed
from ddpjob_core.observations.observed import JobRecord, PodRecord, ServiceRecord


@dataclass(frozen=True, slots=True)
class Caches:
    """The objects that the operator follows."""

    jobs: Store[JobRecord]
    pods: Store[PodRecord]
    services: Store[ServiceRecord]
    departed: Departed = field(default_factory=Departed)

    def foreign(self, job: JobRecord) -> dict[str, str]:
        """Objects that stand where this job's own should, as `pod digits-a0-1`, mapped to whose they are."""
        found = {
            f"pod {pod.name}": _owner(pod)
            for pod in self.pods.group(name_group(job.namespace, job.name))
            if pod.owner_uid != job.uid
        }
        service = self.services.get(job.namespace, job.name)
        if service is not None and service.owner_uid != job.uid:
            found[f"service {service.name}"] = _owner(service)
        return found

    def own(self, job: JobRecord) -> set[str]:
        """Names of the job's own objects that are there, as `pod digits-a0-1`."""
        found = {f"pod {pod.name}" for pod in self.pods.group(job.uid)}
        return found | {f"service {job.name}"} if self.service(job) is not None else found

    def port_rivals(self, job: JobRecord) -> dict[str, dict[str, range]]:
        """Jobs of the same namespace on the host network whose pods have ports that a pod of this job waits for.

        Others are not named: who may see this job need not be allowed to see them.
        """
        ours = _host_ports(job)
        if not ours or not any(pod.obstacle for pod in self.pods.group(job.uid)):
            return {}
        others = (other for other in self.jobs if other.namespace == job.namespace and other.uid != job.uid)
        holders = {other.name: _host_ports(other) for other in others if _has_nodes(self.pods.group(other.uid))}
        return {name: holders[name] for name in sorted(holders) if ports_in_common(ours, holders[name])}

    def service(self, job: JobRecord) -> ServiceRecord | None:
        """The job's own service."""
        found = self.services.get(job.namespace, job.name)
        return found if found is not None and found.owner_uid == job.uid else None


def name_group(namespace: str, job: str) -> str:
    """The group of everything that is labelled with the name of a job, whichever job of that name it belongs to."""
    return f"{namespace}/{job}"


def groups_of(record: PodRecord | ServiceRecord) -> tuple[str, ...]:
    """The groups of a child: the uid of its owner, and the job that its label names."""
    owner = (record.owner_uid,) if record.owner_uid else ()
    return (*owner, name_group(record.namespace, record.job)) if record.job else owner


def _host_ports(job: JobRecord) -> dict[str, range]:
    if job.spec is None or not on_host_network(job.spec.template) or template_errors(job.spec.template):
        return {}
    return ports_of(job.spec, processes_of(job.spec))


def _has_nodes(pods: Iterable[PodRecord]) -> bool:
    return any(pod.node_name is not None and pod.phase not in ("Succeeded", "Failed") for pod in pods)


def _owner(record: PodRecord | ServiceRecord) -> str:
    return f"DDPJob {record.job} (uid {record.owner_uid})" if record.owner_uid else "nobody that is known"
