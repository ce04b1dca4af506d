"""`ddpjob doctor NAME`: the checks of one job, in the order in which a job progresses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from ddpjob.views.checks import Check, Outcome, Read, addresses, because, skipped
from ddpjob.views.job import Job, JobEvent
from ddpjob.views.remedies import remedy_of_refusal
from ddpjob.views.slowest import slowest_rank, what_slows
from ddpjob.views.start_remedies import remedy_of_scheduling, remedy_of_start
from ddpjob_core.api.constants import INVALID_SPEC
from ddpjob_core.api.errors import ApiError, NotFound
from ddpjob_core.api.status import Condition, ConditionType
from ddpjob_core.observations.listing import grouped_by_message
from ddpjob_core.observations.observed import PodRecord, RejectionKind, Running, Terminated, Waiting
from ddpjob_core.observations.obstacle import IMAGE_REASONS, obstacle_of

Json: TypeAlias = dict[str, Any]

_NOTICED_WITHIN: Final = timedelta(seconds=30)
_BLOCKED: Final = tuple(kind.value for kind in RejectionKind)
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Findings:
    """What was read about a job, with an error in place of what could not be read.

    `warnings` are the events of its pods, by pod name.
    """

    job: Job
    pods: Sequence[PodRecord] | ApiError
    service: Json | ApiError
    slices: Read
    warnings: Sequence[tuple[str, JobEvent]] | ApiError
    now: datetime


def check_job(found: Findings) -> list[Check]:
    """All checks of one job; after one that a job cannot pass, the others are left out."""
    checks = [_accepted(found), _noticed(found)]
    ended = _ended(found.job)
    if ended is not None:
        return [*checks, ended]
    if any(check.outcome is Outcome.FAIL for check in checks):
        return checks
    if found.job.status.holds(ConditionType.SUSPENDED):
        return [
            *checks,
            Check("Suspended", Outcome.OK, "it has no pods while it is suspended", f"ddpjob resume {found.job.name}"),
        ]
    checks.append(_created(found.job))
    pods = found.pods
    if isinstance(pods, ApiError):
        return [*checks, skipped("Pods", pods), _progress(found.job)]
    current = [pod for pod in pods if pod.attempt == found.job.status.attempt]
    return [
        *checks,
        _scheduled(current),
        _image(current),
        _starts(found.job, current, found.warnings),
        _addresses(found, current),
        _rendezvous(found, current),
        _progress(found.job),
    ]


def _accepted(found: Findings) -> Check:
    name, failed = "Spec", found.job.status.condition(ConditionType.FAILED)
    if found.job.record.spec is None:
        return Check(name, Outcome.FAIL, found.job.record.spec_error or "cannot be understood", "correct it")
    left_alone = found.job.status.condition(ConditionType.UNREADABLE)
    if left_alone is not None and left_alone.status == "True":
        return Check(name, Outcome.FAIL, left_alone.message, "compare the versions of the operator and of the CRD")
    if failed is not None and (failed.status, failed.reason) == ("True", INVALID_SPEC):
        return Check(name, Outcome.FAIL, failed.message, f"kubectl edit ddpjob {found.job.name}: it then starts again")
    return Check(name, Outcome.OK, "it is valid")


def _noticed(found: Findings) -> Check:
    name, job = "Operator", found.job
    seen = job.status.observed_generation
    if seen == job.record.generation:
        return Check(name, Outcome.OK, "it has seen the current version of the job")
    age = found.now - job.created if job.created is not None else None
    if seen is None and age is not None and age < _NOTICED_WITHIN:
        return Check(name, Outcome.SKIP, "the job was just created")
    message = "it has never seen the job" if seen is None else "it has not seen the latest change of the job"
    return Check(name, Outcome.FAIL, message, "ddpjob doctor without a name checks the operator")


def _ended(job: Job) -> Check | None:
    if job.status.holds(ConditionType.SUCCEEDED):
        return Check("End", Outcome.OK, "the job has succeeded")
    failed = job.status.condition(ConditionType.FAILED)
    if failed is None or failed.status != "True":
        return None
    # What is wrong with the spec has been said by its own check.
    why = "" if failed.reason == INVALID_SPEC else f": {failed.message}"
    return Check("End", Outcome.FAIL, f"{failed.reason}{why}", f"ddpjob why {job.name} explains it")


def _created(job: Job) -> Check:
    name, condition = "Objects", job.status.condition(ConditionType.PODS_SCHEDULED)
    if condition is not None and condition.status == "False" and condition.reason in _BLOCKED:
        remedy = {
            RejectionKind.NAME_TAKEN.value: "delete the object if it is not needed, or give the job another name",
            RejectionKind.UNAVAILABLE.value: "tell the owner of the webhook that it names; the operator tries again",
            RejectionKind.ALTERED.value: "ask its owner to leave the pods of DDPJobs as they are",
            RejectionKind.BEING_DELETED.value: "the operator creates it again; kubectl describe shows what keeps it",
        }.get(condition.reason) or remedy_of_refusal(condition.message)
        return Check(name, Outcome.FAIL, condition.message, remedy)
    if job.status.pods_created:
        return Check(name, Outcome.OK, f"the pods of attempt {job.status.attempt} have been created")
    return Check(name, Outcome.SKIP, condition.message if condition is not None else "its pods are being created")


def _scheduled(pods: Sequence[PodRecord]) -> Check:
    name = "Scheduling"
    waiting = [pod for pod in pods if not pod.scheduled]
    problems = [(pod.name, pod.obstacle.message) for pod in waiting if pod.obstacle is not None]
    if problems:
        hint = remedy_of_scheduling(problems[0][1])
        return Check(name, Outcome.FAIL, grouped_by_message(problems, _NAMED, "pods"), hint)
    if waiting:
        return Check(name, Outcome.SKIP, f"{len(waiting)} of {len(pods)} pods wait for the scheduler")
    return Check(name, Outcome.OK, f"{len(pods)} of {len(pods)} pods have a node")


def _image(pods: Sequence[PodRecord]) -> Check:
    name = "Image"
    missing = [(pod, obstacle) for pod, obstacle in _obstacles(pods) if obstacle.reason in IMAGE_REASONS]
    problems = [(pod.name, because(obstacle.reason, obstacle.message)) for pod, obstacle in missing]
    if problems:
        hint = "check spec.trainer.image, imagePullPolicy, and the pull secrets of spec.template"
        return Check(name, Outcome.FAIL, grouped_by_message(problems, _NAMED, "pods"), hint)
    return Check(name, Outcome.OK, "no pod waits for an image")


def _starts(job: Job, pods: Sequence[PodRecord], warnings: Sequence[tuple[str, JobEvent]] | ApiError) -> Check:
    name = "Containers"
    problems = [
        (pod.name, because(obstacle.reason, obstacle.message))
        for pod, obstacle in _obstacles(pods)
        if obstacle.reason not in IMAGE_REASONS and pod.scheduled
    ]
    not_up = {pod.name for pod in pods if not isinstance(pod.trainer, Running | Terminated)}
    if isinstance(warnings, ApiError):
        warnings = ()
    # For a pod whose volume is missing, the kubelet reports only that it is being created.
    silent = not_up - {pod.name for pod, _ in _obstacles(pods)} - {pod.name for pod in pods if not pod.scheduled}
    mounts = {pod: event.message for pod, event in warnings if pod in silent and _is_about_the_pod(event.reason)}
    problems += mounts.items()
    if problems:
        hint = remedy_of_start(job.name, *problems[0])
        return Check(name, Outcome.FAIL, grouped_by_message(problems, _NAMED, "pods"), hint)
    up = len(pods) - len(not_up)
    outcome = Outcome.OK if not not_up else Outcome.SKIP
    return Check(name, outcome, f"{up} of {len(pods)} are running or have ended")


def _is_about_the_pod(reason: str) -> bool:
    """Whether a warning says what its pod waits for on its node, as FailedMount does; plain Failed is a container's."""
    return reason.startswith("Failed") and reason not in ("Failed", "FailedScheduling")


def _obstacles(pods: Sequence[PodRecord]) -> list[tuple[PodRecord, Waiting]]:
    return [(pod, obstacle) for pod in pods if (obstacle := obstacle_of(pod)) is not None]


def _addresses(found: Findings, pods: Sequence[PodRecord]) -> Check:
    name = "Names"
    if isinstance(found.service, NotFound):
        return Check(name, Outcome.FAIL, f"the job's service: {found.service}", "the operator recreates it")
    if isinstance(found.service, ApiError):
        return skipped(name, found.service)
    if isinstance(found.slices, ApiError):
        return skipped(name, found.slices)
    running = sum(_runs_since(pod, found.now) for pod in pods)
    known = addresses(found.slices)
    if known < running:
        return Check(
            name,
            Outcome.FAIL,
            f"the service {found.job.name} has {known} addresses for {running} running pods",
            "the endpoint slice controller is behind, or the service's selector was changed",
        )
    return Check(name, Outcome.OK, f"the service {found.job.name} has {known} addresses")


def _runs_since(pod: PodRecord, now: datetime) -> bool:
    """Whether the pod has run long enough that its address should be known, and its node should have met the others."""
    since = pod.trainer.since if isinstance(pod.trainer, Running) else None
    return since is not None and now - since > _NOTICED_WITHIN


def _rendezvous(found: Findings, pods: Sequence[PodRecord]) -> Check:
    name = "Rendezvous"
    ready = found.job.status.condition(ConditionType.RENDEZVOUS_READY)
    if ready is not None and ready.status == "True":
        return Check(name, Outcome.OK, ready.message)
    if ready is not None and pods and all(_runs_since(pod, found.now) for pod in pods):
        hint = "ddpjob doctor without a name checks DNS; a NetworkPolicy must allow the job's pods to reach each other"
        return Check(name, Outcome.FAIL, ready.message, hint)
    if ready is None or all(map(_is_up, pods)):
        return Check(name, Outcome.SKIP, _message(ready))
    # The checks above say what the others wait for.
    nodes = found.job.status.nodes
    desired = nodes.desired if nodes is not None else len(pods)
    return Check(name, Outcome.SKIP, f"{sum(map(_is_up, pods))}/{desired} nodes are up")


def _is_up(pod: PodRecord) -> bool:
    return isinstance(pod.trainer, Running) or (isinstance(pod.trainer, Terminated) and pod.trainer.exit_code == 0)


def _progress(job: Job) -> Check:
    name, status = "Progress", job.status
    stalled = status.condition(ConditionType.TRAINING_STALLED)
    if stalled is not None and stalled.status == "True":
        return Check(name, Outcome.FAIL, stalled.message, f"ddpjob logs {job.name} shows the stacks of its ranks")
    training = status.condition(ConditionType.TRAINING)
    if training is None or training.status != "True":
        return Check(name, Outcome.SKIP, _message(training))
    if status.slowest is not None:
        return Check(name, Outcome.WARN, slowest_rank(status), what_slows(status))
    return Check(name, Outcome.OK, f"step {status.summary.step or '?'}")


def _message(condition: Condition | None) -> str:
    return condition.message if condition is not None else "nothing has been reported yet"
