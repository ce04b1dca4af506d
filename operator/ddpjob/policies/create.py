"""Making the pods of an attempt, all of them or none."""

from datetime import timedelta
from typing import Final

from ddpjob.children.launcher_config import build_launcher
from ddpjob.children.names import service_name
from ddpjob.children.pod import build_pod
from ddpjob.children.service import build_service
from ddpjob.observed import RejectionKind
from ddpjob.plan import Action, CreateLauncher, CreatePod, CreateService
from ddpjob.policies.attempt import NodeState
from ddpjob.policies.cleanup import left_pods, left_pods_look_again, left_pods_run, stray_pods
from ddpjob.policies.restart import not_before
from ddpjob.policies.situation import Decision, Situation

TRY_AGAIN_AFTER: Final = timedelta(seconds=10)
"""How long a name that is taken or a quota that is used up is left alone before the next try."""


def creating(situation: Situation) -> Decision | None:
    """An attempt whose pods have not all been made."""
    status = situation.status
    if status.pods_created:
        return None
    left = left_pods(situation)
    due = not_before(status)
    if left_pods_run(situation) or (due is not None and situation.now < due):
        waits = (*left_pods_look_again(situation), *((due,) if due is not None else ()))
        return Decision(status, left, look_again=waits)
    children = (*_shared_children(situation), *_pods(situation))
    if children:
        blocked = bool(taken_names(situation)) or bool(situation.observed.rejections)
        again = (situation.now + TRY_AGAIN_AFTER,) if blocked else ()
        fresh = situation.job.status is None and not blocked
        if taken_names(situation):
            return Decision(status, left, look_again=again)
        strays = () if blocked else stray_pods(situation)
        return Decision(status, (*left, *strays, *children), unwritten=fresh, look_again=again)
    created = status.model_copy(
        update={"pods_created": True, "start_time": status.start_time or situation.now},
    )
    return Decision(created, left, transition=True)


def taken_names(situation: Situation) -> dict[str, str]:
    """Objects that stand where this job's own should, mapped to whose they are: as long as they do, nothing is made.

    They are those of a job of the same name that was just deleted, which the garbage collector is about to remove, or
    somebody's own.
    """
    attempt = situation.attempt
    missing = [name for name, pod in zip(attempt.names, attempt.nodes, strict=True) if pod is None]
    wanted = [f"pod {name}" for name in missing]
    if situation.observed.service is None:
        wanted.append(f"service {service_name(situation.job.name)}")
    return {name: situation.observed.foreign[name] for name in wanted if name in situation.observed.foreign}


def _shared_children(situation: Situation) -> tuple[Action, ...]:
    job, spec = situation.job, situation.spec
    children: list[Action] = []
    if situation.observed.service is None:
        children.append(CreateService(build_service(job, spec)))
    # The ConfigMap is not watched. Whether it is there is known only to the process that made it, and creating what
    # exists costs one request an attempt after the operator has been restarted.
    if spec.trainer.command is None and situation.observed.launcher_attempt != situation.attempt.number:
        children.append(CreateLauncher(build_launcher(job), situation.attempt.number))
    return tuple(children)


def _pods(situation: Situation) -> tuple[Action, ...]:
    states = situation.attempt.states()
    missing = [ordinal for ordinal, state in enumerate(states) if state is NodeState.MISSING]
    if any(rejection.kind is RejectionKind.FORBIDDEN for rejection in situation.observed.rejections):
        # A used up quota refuses every pod alike: one is enough to ask whether it still does.
        missing = missing[:1]
    return tuple(
        CreatePod(build_pod(situation.job, situation.spec, situation.attempt.number, ordinal)) for ordinal in missing
    )
