"""Jobs: read, followed, and changed."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from ddpjob.cluster.client import WATCH_SECONDS, Cluster
from ddpjob.views.job import Job, JobEvent, Json, PodRecord, event_of, job_of, pod_record
from ddpjob_core.api.constants import INVALID_SPEC, LABEL_UID
from ddpjob_core.api.errors import Conflict, Expired, NotFound, Unavailable, UsageProblem
from ddpjob_core.api.resources import EVENTS, JOBS, PODS
from ddpjob_core.api.status import ConditionType

_TRIES: Final = 5


def get_job(cluster: Cluster, name: str, namespace: str | None = None) -> Job:
    """A job by its name.

    Raises:
        NotFound: there is none; the error says where else one of that name is, as far as the user may look.
    """
    where = namespace or cluster.namespace
    try:
        return job_of(cluster.get(JOBS, where, name))
    except NotFound as missing:
        if missing.remedy:
            raise
        raise NotFound(
            f"there is no DDPJob {name} in namespace {where}",
            "ddpjob status -A lists the jobs of all namespaces; -n chooses one",
        ) from missing


def list_jobs(cluster: Cluster, namespace: str | None) -> list[Job]:
    """The jobs of a namespace, or of all namespaces if it is None, sorted by namespace and name."""
    jobs = [job_of(raw) for raw in cluster.find(JOBS, namespace)]
    return sorted(jobs, key=lambda job: (job.namespace, job.name))


def pods_of(cluster: Cluster, job: Job) -> list[PodRecord]:
    """The job's own pods, oldest attempt first."""
    found = (pod_record(raw) for raw in cluster.find(PODS, job.namespace, labels=f"{LABEL_UID}={job.record.uid}"))
    return sorted(
        (pod for pod in found if pod is not None),
        key=lambda pod: (pod.attempt or 0, pod.ordinal or 0, pod.name),
    )


def events_of(cluster: Cluster, job: Job) -> list[JobEvent]:
    """The events of the job, oldest first; the API server keeps events for about an hour."""
    fields = f"involvedObject.uid={job.record.uid}"
    # Their times are whole seconds; two events of the same second are in the order in which they were written.
    raws = sorted(cluster.find(EVENTS, job.namespace, fields=fields), key=_written)
    events = [event_of(raw) for raw in raws]
    return sorted(events, key=lambda event: event.time.timestamp() if event.time else 0.0)


def _written(raw: Json) -> int:
    version = (raw.get("metadata") or {}).get("resourceVersion") or "0"
    return int(version) if version.isdigit() else 0


def follow(
    cluster: Cluster,
    job: Job,
    *,
    patience: Callable[[], float] = lambda: WATCH_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[Job]:
    """The job as it is now, after each change, and when nothing has changed for a while; it never ends.

    Args:
        cluster: where.
        job: which.
        patience: seconds to wait for a change before the job is yielded again.
        pause: waits this many seconds before the next request, if the API server did not answer.

    Raises:
        NotFound: the job was deleted, or another one has its name.
        Unavailable: the API server did not answer several times in a row.
    """
    failures = 0
    while True:
        try:
            current = _same(cluster, job)
            failures = 0
            yield current
            yield from _watched(cluster, current, min(patience(), WATCH_SECONDS))
        except Expired:
            continue
        except Unavailable:
            failures += 1
            if failures >= _TRIES:
                raise
            pause(2.0 ** (failures - 1))


def _same(cluster: Cluster, job: Job) -> Job:
    current = get_job(cluster, job.name, job.namespace)
    if current.record.uid != job.record.uid:
        raise NotFound(f"the DDPJob {job.name} was deleted and created again", f"ddpjob status {job.name}")
    return current


def _watched(cluster: Cluster, job: Job, seconds: float) -> Iterator[Job]:
    fields = f"metadata.name={job.name}"
    since = job.record.resource_version
    for event in cluster.watch(JOBS, job.namespace, fields=fields, since=since, seconds=seconds):
        if event.type == "DELETED":
            raise NotFound(f"the DDPJob {job.name} was deleted")
        yield job_of(event.object)


def until(cluster: Cluster, job: Job, condition: Callable[[Job], bool]) -> Job:
    """Wait until the condition holds, and return the job."""
    for current in follow(cluster, job):
        if condition(current):
            return current
    raise AssertionError("unreachable")


def set_suspend(cluster: Cluster, job: Job, *, suspend: bool) -> Job:
    """Suspend or resume a job.

    Raises:
        UsageProblem: it has ended.
    """
    if job.status.finished:
        word = "suspended" if suspend else "resumed"
        again = f"ddpjob delete {job.name}, then create it again"
        if _failed_for_its_spec(job):
            again = f"kubectl edit ddpjob {job.name} -n {job.namespace}"
        raise UsageProblem(f"{job.name} has {_ended(job)} and cannot be {word}", f"to run it again: {again}")
    return _patch(cluster, job, {"suspend": suspend})


def set_nodes(cluster: Cluster, job: Job, nodes: int) -> Job:
    """Change the number of nodes; a job that failed for its spec then starts again.

    Raises:
        UsageProblem: the job has ended, or its size is fixed while it runs, or has other limits.
    """
    if _failed_for_its_spec(job):
        return _patch(cluster, job, {"nodes": nodes})
    if job.status.finished:
        raise UsageProblem(f"{job.name} has {_ended(job)}: its size can no longer change")
    spec = job.record.spec
    if spec is not None and spec.elastic is not None:
        least, most = spec.elastic.min_nodes, spec.elastic.max_nodes
        if not least <= nodes <= most:
            raise UsageProblem(
                f"{job.name} can have from {least} to {most} nodes, as its spec.elastic says, and not {nodes}"
            )
        return _patch(cluster, job, {"nodes": nodes})
    if spec is None or not spec.suspend:
        raise UsageProblem(
            f"{job.name} is not suspended: without spec.elastic its size changes only while it is suspended",
            f"suspend it, resize it, resume it: ddpjob suspend {job.name} --wait && "
            f"ddpjob scale {job.name} --nodes {nodes} && ddpjob resume {job.name}",
        )
    return _patch(cluster, job, {"nodes": nodes})


def delete_job(cluster: Cluster, job: Job) -> None:
    """Delete exactly this job with everything that it owns; it may be gone already."""
    try:
        cluster.delete(JOBS, job.namespace, job.name, uid=job.record.uid)
    except (NotFound, Conflict):
        return


def _patch(cluster: Cluster, job: Job, spec: dict[str, Any]) -> Job:
    # The uid protects a new job of the same name from the change.
    change = {"metadata": {"uid": job.record.uid}, "spec": spec}
    return job_of(cluster.patch(JOBS, job.namespace, job.name, change))


def _failed_for_its_spec(job: Job) -> bool:
    failed = job.status.condition(ConditionType.FAILED)
    return failed is not None and (failed.status, failed.reason) == ("True", INVALID_SPEC)


def _ended(job: Job) -> str:
    return job.status.phase.value.lower()
