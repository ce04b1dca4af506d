"""Everything in the status besides what a policy has decided, whichever policy it was."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.children.metadata import pod_selector
from ddpjob_core.children.restricted import RESTRICTED, is_restricted
from ddpjob_core.observations.progress import is_beyond, reported_progress, without_pace
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.suspension import is_stopping
from ddpjob_core.status.conditions import Fact, with_facts
from ddpjob_core.status.nodes import count_nodes, count_replicas, nodes_left
from ddpjob_core.status.phase import phase_of
from ddpjob_core.status.pods_scheduled import pods_scheduled, why_not_created
from ddpjob_core.status.rendezvous_ready import rendezvous_ready
from ddpjob_core.status.resizing import resizing_facts
from ddpjob_core.status.resolved import resolved_fields
from ddpjob_core.status.slowest import slowest_rank
from ddpjob_core.status.spare_nodes_ready import spare_facts
from ddpjob_core.status.stacks import kept_stacks
from ddpjob_core.status.state import state_of
from ddpjob_core.status.status_refused import refused_facts
from ddpjob_core.status.summary import summarize
from ddpjob_core.status.training import training
from ddpjob_core.status.training_stalled import stall_facts
from ddpjob_core.status.unreadable import readable_facts


def completed(situation: Situation, decided: DDPJobStatus) -> DDPJobStatus:
    """The decided status with its counts, conditions, phase and columns."""
    if decided.finished and situation.job.status is not None and situation.job.status.finished:
        return _of_finished_job(situation, decided)
    reported = reported_progress(situation.observed, situation.attempt)
    loss_text = "" if reported is None else reported[1]
    steps = reported is not None and bool(reported[0].step)
    nodes = count_nodes(situation, decided)
    status = decided.model_copy(
        update={
            "observed_generation": situation.job.generation,
            "nodes": nodes,
            "replicas": nodes.ready if decided.finished else count_replicas(situation, decided),
            "selector": pod_selector(situation.job, decided.attempt),
            **resolved_fields(situation.spec, decided),
            "pod_security": RESTRICTED if is_restricted(situation.job.status) else None,
            "stacks": kept_stacks(situation, decided),
            "slowest": slowest_rank(situation, decided),
            "first_step_time": decided.first_step_time or (situation.now if steps else None),
        },
    )
    if status.progress is not None and status.progress.attempt not in (None, status.attempt):
        status = status.model_copy(update={"progress": without_pace(status.progress)})
    facts = (
        *_facts(situation, status, steps=steps),
        *refused_facts(situation.observed, status),
        *readable_facts(status),
    )
    status = with_facts(status, facts, situation.job.generation, situation.now)
    status = status.model_copy(update={"phase": phase_of(status)})
    return status.model_copy(update={"state": state_of(status), "summary": summarize(status, loss_text)})


def _of_finished_job(situation: Situation, finished: DDPJobStatus) -> DDPJobStatus:
    """The status of a job that had finished: it shows that a changed spec, such as a new time to live, was seen.

    It also takes over the last steps and the checkpoint of ranks that were asked to stop when the job failed, and does
    not count pods as ready that have ended since.
    """
    nodes = nodes_left(situation, finished)
    changed: dict[str, object] = {"nodes": nodes}
    if nodes is not None and nodes != finished.nodes:
        changed["replicas"] = nodes.ready
    last, loss_text = reported_progress(situation.observed, situation.attempt), ""
    if last is not None and is_beyond(last[0], finished.progress):
        changed["progress"], loss_text = last
    seen = finished.model_copy(update={"observed_generation": situation.job.generation, **changed})
    refused = (*refused_facts(situation.observed, seen), *readable_facts(seen))
    seen = with_facts(seen, refused, situation.job.generation, situation.now) if refused else seen
    shown = (seen.nodes, seen.progress) == (finished.nodes, finished.progress)
    return seen if shown else seen.model_copy(update={"summary": summarize(seen, loss_text)})


def _facts(situation: Situation, status: DDPJobStatus, *, steps: bool) -> tuple[Fact, ...]:
    passing = (ConditionType.TRAINING_STALLED, ConditionType.RESIZING, ConditionType.SPARE_NODES_READY)
    held = tuple(kind for kind in passing if status.holds(kind))
    if status.finished:
        ended = (ConditionType.TRAINING, *held)
        return tuple(Fact(kind, "False", "Finished", "the job has finished") for kind in ended)
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and (suspended.status == "True" or is_stopping(status)):
        ended = (ConditionType.PODS_SCHEDULED, ConditionType.RENDEZVOUS_READY, ConditionType.TRAINING, *held)
        return tuple(Fact(kind, "False", suspended.reason, suspended.message) for kind in ended)
    return (*_of_attempt(situation, status, steps=steps), *stall_facts(situation, status))


def _of_attempt(situation: Situation, status: DDPJobStatus, *, steps: bool) -> tuple[Fact, ...]:
    # The decided status may already name the next attempt.
    has_pods = status.pods_created or bool(situation.attempt.present)
    if status.attempt != situation.attempt.number or not has_pods:
        reason, message = why_not_created(situation, status)
        waits = f"attempt {status.attempt} has no pods yet: see {ConditionType.PODS_SCHEDULED.value}"
        return (
            Fact(ConditionType.PODS_SCHEDULED, "False", reason, message),
            *(
                Fact(kind, "False", reason, waits)
                for kind in (ConditionType.RENDEZVOUS_READY, ConditionType.TRAINING, *_resizing(status))
            ),
        )
    return (
        pods_scheduled(situation),
        rendezvous_ready(situation),
        training(situation, steps=steps),
        *resizing_facts(situation, status),
        *spare_facts(situation, status),
    )


def _resizing(status: DDPJobStatus) -> tuple[ConditionType, ...]:
    return tuple(kind for kind in (ConditionType.RESIZING, ConditionType.SPARE_NODES_READY) if status.holds(kind))
