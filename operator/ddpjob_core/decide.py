"""What is to be done about a job, decided from what is known of it: pure, total, deterministic.

The policies are asked in order and the first that applies decides. What the status says beside (counts, conditions of
the attempt, progress, columns, phase) follows from the situation whichever policy it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from ddpjob_core.api.constants import MAX_PROCESSES
from ddpjob_core.api.ordinals import format_ordinals, parse_ordinals
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Nodes, Phase
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.actions import Action
from ddpjob_core.children.metadata import pod_selector
from ddpjob_core.children.pod import resources_of
from ddpjob_core.children.processes import resolve_backend, resolve_procs_per_node
from ddpjob_core.observations.attempt import Attempt, NodeState, highest_attempt, view_attempt
from ddpjob_core.observations.node_lost import lost_at, with_lost_nodes
from ddpjob_core.observations.observed import Observed
from ddpjob_core.observations.progress import is_beyond, reported_progress, with_restarts, without_pace
from ddpjob_core.observations.rendezvous import next_rendezvous_look, rendezvous_targets
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import rank_targets
from ddpjob_core.observations.suspension import is_stopping
from ddpjob_core.policies.cleanup import finished, pods_to_clean
from ddpjob_core.policies.create import creating
from ddpjob_core.policies.deadlines import active_deadline, next_deadline, stalled, startup_deadline
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.invalid import INVALID_SPEC, invalid_template, refused_by_server
from ddpjob_core.policies.restart import failed
from ddpjob_core.policies.spec_changed import respecified
from ddpjob_core.policies.success import succeeded
from ddpjob_core.policies.suspend import resuming, suspending
from ddpjob_core.status.conditions import Fact, with_facts
from ddpjob_core.status.events import Event, events_between
from ddpjob_core.status.facts import attempt_facts, phase_of
from ddpjob_core.status.stall import stall_facts
from ddpjob_core.status.summary import summarize
from ddpjob_core.status.writes import differs, look_at, may_write_at
from ddpjob_core.wire.progress import PollTarget


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one job: write `status` first, then carry out `actions`, then post `events`.

    `status` None means that nothing has to be written now. `urgent` tells a state transition, which is never held back
    by the limit on progress writes. `requeue_after` asks for another look although nothing may change until then.
    `poll` are the ranks whose progress is read: none, rank 0, or all of them where the training seems to stand still.
    """

    status: DDPJobStatus | None = None
    urgent: bool = False
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    poll: tuple[PollTarget, ...] = ()


Policy: TypeAlias = Callable[[Situation], Decision | None]

POLICIES: Final[tuple[Policy, ...]] = (
    finished,
    suspending,
    invalid_template,
    resuming,
    respecified,
    succeeded,
    refused_by_server,
    active_deadline,
    failed,
    startup_deadline,
    stalled,
    creating,
)


def decide(observed: Observed) -> Plan:
    """The plan for one job."""
    job = observed.job
    if job.deleting:
        return Plan()
    # A status holds whole seconds: a moment that cannot be read back would look like a change for ever.
    moment = observed.now.replace(microsecond=0)
    at = replace(observed, now=moment, pods=with_lost_nodes(observed.pods, moment))
    if job.spec is None:
        return _unreadable(at)
    number = job.status.attempt if job.status is not None else highest_attempt(job.name, observed.pods)
    attempt = view_attempt(
        job.name,
        number,
        job.spec.nodes,
        at.pods,
        succeeded=_succeeded(job.status, job.spec.nodes),
        departed=observed.departed,
    )
    situation = Situation(at, job.spec, _up_to_date(at, attempt), attempt)
    decision = next((made for policy in POLICIES if (made := policy(situation)) is not None), None)
    return _plan(situation, decision or Decision(situation.status), observed.now)


def _up_to_date(observed: Observed, attempt: Attempt) -> DDPJobStatus:
    """What was written last, with the progress that has been reported since: the policies count by it."""
    before = observed.job.status
    status = before or DDPJobStatus(attempt=attempt.number)
    reported = None if status.finished else reported_progress(observed, attempt)
    if reported is None:
        return status
    return with_restarts(status.model_copy(update={"progress": reported[0]}), before)


def _succeeded(status: DDPJobStatus | None, nodes: int) -> frozenset[int]:
    known = status.nodes if status is not None and status.pods_created else None
    if known is None or known.desired != nodes:
        return frozenset()
    return parse_ordinals(known.succeeded_ordinals or "", nodes)


def _plan(situation: Situation, decision: Decision, now: datetime) -> Plan:
    old = situation.job.status
    was_finished = old is not None and old.finished
    status = _seen(situation, decision.status) if was_finished else _complete(situation, decision.status)
    actions = decision.actions
    if status.finished and not was_finished:
        actions = (*actions, *pods_to_clean(situation))
    changed = not decision.unwritten and differs(old, status)
    urgent = decision.transition or _stall_turns(old, status)
    due = may_write_at(situation.observed.last_status_write, now) if changed and not urgent else now
    write = changed and due <= now
    waiting = (look_at(old, status, due),) if changed and not write else ()
    moments = (*decision.look_again, *_looks(situation, status), *waiting)
    waits = [moment for moment in moments if moment > now]
    return Plan(
        status=status if write else None,
        urgent=urgent,
        actions=actions,
        events=events_between(old, status, max_restarts=situation.spec.restart.max_restarts) if write else (),
        requeue_after=min(waits) - now if waits else None,
        poll=() if status.finished else (*rank_targets(situation), *rendezvous_targets(situation)),
    )


def _looks(situation: Situation, status: DDPJobStatus) -> tuple[datetime, ...]:
    """When time alone may change what is to be done, whatever was decided now."""
    silent = () if status.finished else (*lost_at(situation.observed.pods), *next_rendezvous_look(situation))
    return (*next_deadline(situation, status), *silent)


def _stall_turns(old: DDPJobStatus | None, new: DDPJobStatus) -> bool:
    before = old is not None and old.holds(ConditionType.TRAINING_STALLED)
    return before != new.holds(ConditionType.TRAINING_STALLED)


def _seen(situation: Situation, finished_status: DDPJobStatus) -> DDPJobStatus:
    """The status of a finished job: it tells that a changed spec, such as another time to live, was seen.

    It also takes the last steps and the checkpoint of ranks that were asked to stop when the job had failed.
    """
    seen = finished_status.model_copy(update={"observed_generation": situation.job.generation})
    last = reported_progress(situation.observed, situation.attempt)
    if last is None or not is_beyond(last[0], finished_status.progress):
        return seen
    seen = seen.model_copy(update={"progress": last[0]})
    return seen.model_copy(update={"summary": summarize(seen, last[1])})


def _complete(situation: Situation, decided: DDPJobStatus) -> DDPJobStatus:
    reported = reported_progress(situation.observed, situation.attempt)
    loss_text = "" if reported is None else reported[1]
    steps = reported is not None and bool(reported[0].step)
    # Of a template with errors nothing can be merged.
    resources = None if template_errors(situation.spec.template) else resources_of(situation.spec)
    status = decided.model_copy(
        update={
            "observed_generation": situation.job.generation,
            "nodes": _nodes(situation, decided),
            "replicas": len(situation.attempt.present) if decided.attempt == situation.attempt.number else 0,
            "selector": pod_selector(situation.job),
            **({} if resources is None else _resolved(situation.spec, resources)),
            "first_step_time": decided.first_step_time or (situation.now if steps else None),
        },
    )
    if status.progress is not None and status.progress.attempt not in (None, status.attempt):
        status = status.model_copy(update={"progress": without_pace(status.progress)})
    status = with_facts(status, _facts(situation, status, steps=steps), situation.job.generation, situation.now)
    status = status.model_copy(update={"phase": phase_of(status)})
    return status.model_copy(update={"summary": summarize(status, loss_text)})


def _resolved(spec: DDPJobSpec, resources: Mapping[str, Any]) -> dict[str, object]:
    """What `auto` comes to in the status."""
    return {
        "procs_per_node": min(resolve_procs_per_node(spec.procs_per_node, resources), MAX_PROCESSES),
        "backend": resolve_backend(spec.backend, resources).value,
    }


def _facts(situation: Situation, status: DDPJobStatus, *, steps: bool) -> tuple[Fact, ...]:
    if status.finished:
        training = Fact(ConditionType.TRAINING, "False", "Finished", "the job has finished")
        if status.holds(ConditionType.TRAINING_STALLED):
            return (training, Fact(ConditionType.TRAINING_STALLED, "False", "Finished", "the job has finished"))
        return (training,)
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and (suspended.status == "True" or is_stopping(status)):
        told = [ConditionType.PODS_SCHEDULED, ConditionType.RENDEZVOUS_READY, ConditionType.TRAINING]
        if status.holds(ConditionType.TRAINING_STALLED):
            told.append(ConditionType.TRAINING_STALLED)
        return tuple(Fact(kind, "False", suspended.reason, suspended.message) for kind in told)
    return (*attempt_facts(situation, status, steps=steps), *stall_facts(situation, status))


def _nodes(situation: Situation, status: DDPJobStatus) -> Nodes:
    states = situation.attempt.states() if status.attempt == situation.attempt.number else ()
    if status.holds(ConditionType.SUSPENDED) or is_stopping(status):
        # Whatever they end with, they were asked to: it is neither a failure nor the end of the training.
        return Nodes(desired=situation.spec.nodes, ready=states.count(NodeState.RUNNING))
    missing_failed = NodeState.MISSING if status.pods_created else None
    return Nodes(
        desired=situation.spec.nodes,
        ready=states.count(NodeState.RUNNING),
        succeeded=states.count(NodeState.SUCCEEDED),
        failed=states.count(NodeState.FAILED) + (states.count(missing_failed) if missing_failed else 0),
        succeeded_ordinals=format_ordinals(
            ordinal for ordinal, state in enumerate(states) if state is NodeState.SUCCEEDED
        )
        or None,
    )


def _unreadable(observed: Observed) -> Plan:
    """A spec that this version of the operator cannot understand, although the API server let it pass."""
    job = observed.job
    old = job.status
    if old is not None and old.finished:
        return Plan()
    fact = Fact(ConditionType.FAILED, "True", INVALID_SPEC, job.spec_error or "spec cannot be understood")
    status = with_facts(old or DDPJobStatus(), (fact,), job.generation, observed.now).model_copy(
        update={"phase": Phase.FAILED, "completion_time": observed.now, "observed_generation": job.generation},
    )
    return Plan(status=status, urgent=True, events=events_between(old, status, max_restarts=0))
