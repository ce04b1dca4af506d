"""What is to be done about a job, decided from what is known of it: pure, total, deterministic.

Policies are evaluated in order; the first that applies decides. What else the status says (counts, conditions of the
attempt, progress, columns, phase) follows from the situation, whichever policy it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from ddpjob_core.api.network_policy import Isolation
from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus
from ddpjob_core.children.actions import Action
from ddpjob_core.observations.advice import IN_A_CLUSTER, Advice
from ddpjob_core.observations.leader_times import job_as_led
from ddpjob_core.observations.moments import next_moments
from ddpjob_core.observations.node_lost import with_lost_nodes
from ddpjob_core.observations.observed import Observed
from ddpjob_core.observations.rendezvous import rendezvous_targets
from ddpjob_core.observations.situation import Situation, as_decided, situation_of
from ddpjob_core.observations.stall import MOST_RANKS, rank_targets
from ddpjob_core.policies.active_deadline_seconds import active_deadline
from ddpjob_core.policies.clean_pod_policy import clean_pod_policy, pods_to_clean
from ddpjob_core.policies.create import creating
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.elastic import elastic, member_actions
from ddpjob_core.policies.invalid_spec import invalid_template, refused_by_server
from ddpjob_core.policies.last_attempt import ends_with_the_last_attempt
from ddpjob_core.policies.mended_spec import mended_spec
from ddpjob_core.policies.missing_children import missing_children
from ddpjob_core.policies.newer_pods import newer_pods
from ddpjob_core.policies.progress_deadline import progress_deadline
from ddpjob_core.policies.rejoin_seconds import rejoin_seconds
from ddpjob_core.policies.restart import restart
from ddpjob_core.policies.slow_rank import slow_rank
from ddpjob_core.policies.spare_nodes import spare_nodes
from ddpjob_core.policies.spec_changed import spec_changed
from ddpjob_core.policies.startup_deadline import startup_deadline
from ddpjob_core.policies.success import succeeded
from ddpjob_core.policies.suspend import resuming, suspending
from ddpjob_core.policies.ttl_seconds_after_finished import ttl_seconds_after_finished as expired
from ddpjob_core.policies.ttl_seconds_after_finished import with_time_to_live
from ddpjob_core.status.bounds import within_bounds
from ddpjob_core.status.complete import completed
from ddpjob_core.status.events import Event, events_between
from ddpjob_core.status.reused_claim import reused_claim_remark
from ddpjob_core.status.unknown_accelerators import unknown_accelerator_remark
from ddpjob_core.status.unreadable import unreadable
from ddpjob_core.status.writes import differs, may_write_at, recheck_at
from ddpjob_core.wire.progress import PollTarget

Policy: TypeAlias = Callable[[Situation], Decision | None]

POLICIES: Final[tuple[Policy, ...]] = (
    newer_pods,
    mended_spec,
    expired,
    clean_pod_policy,
    suspending,
    invalid_template,
    resuming,
    spec_changed,
    succeeded,
    refused_by_server,
    active_deadline,
    rejoin_seconds,
    restart,
    startup_deadline,
    progress_deadline,
    slow_rank,
    elastic,
    spare_nodes,
    creating,
    missing_children,
)


_SHOWN_AT_ONCE: Final = (ConditionType.TRAINING_STALLED, ConditionType.RESIZING)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one job: write `status` first, then carry out `actions`, then post `events`.

    `status` None means that nothing has to be written now. `remark` is a condition to write into a status that
    otherwise stays as it is. `urgent` marks a state transition, which is never held back by the limit on progress
    writes. `requeue_after` requests another reconcile even if nothing changes until then. `poll` are the ranks to
    poll: none, rank 0, or all of them if the training seems to have stalled.
    """

    status: DDPJobStatus | None = None
    urgent: bool = False
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    poll: tuple[PollTarget, ...] = ()
    remark: Condition | None = None


def decide(
    observed: Observed,
    *,
    advice: Advice = IN_A_CLUSTER,
    ttl_seconds_after_finished: int | None = None,
    isolation: Isolation | None = None,
) -> Plan:
    """The plan for one job.

    Args:
        observed: all that is known of it.
        advice: what messages say about where it runs.
        ttl_seconds_after_finished: what holds for a job that sets none itself, None for ever.
        isolation: who may connect to pods, None to make no NetworkPolicies.
    """
    if observed.job.deleting:
        return Plan()
    # A status holds whole seconds: a moment that cannot be read back would look like a change forever.
    moment = observed.now.replace(microsecond=0)
    job = job_as_led(observed)
    at = replace(observed, job=job, now=moment, pods=with_lost_nodes(observed.pods, moment))
    if job.spec is None or job.unreadable is not None:
        return _left_alone(at)
    situation = situation_of(at, with_time_to_live(job.spec, ttl_seconds_after_finished), advice, isolation)
    decision = next((made for policy in POLICIES if (made := policy(situation)) is not None), None)
    decided = ends_with_the_last_attempt(situation, decision or Decision(situation.status))
    return _plan(situation, decided, observed.now)


def _left_alone(observed: Observed) -> Plan:
    remark = unreadable(observed)
    if remark is None:
        return Plan()
    return Plan(remark=remark, events=(Event("Warning", remark.type.value, remark.message),))


def _plan(situation: Situation, decision: Decision, now: datetime) -> Plan:
    situation = as_decided(situation, decision.status)
    old, status = situation.job.status, completed(situation, decision.status)
    if differs(old, status):
        status = within_bounds(status)
    finishes = status.finished and not (old is not None and old.finished)
    goes_on = not status.finished and status.attempt == situation.attempt.number
    members = member_actions(situation) if goes_on else ()
    actions = (*decision.actions, *members, *(pods_to_clean(situation) if finishes else ()))
    changed = not decision.unwritten and differs(old, status)
    # A former leader may have gone on since the status that is known: then the API server refuses this one, and nothing
    # is done to an attempt that is over.
    confirms = situation.observed.inherited and bool(actions)
    urgent = decision.transition or confirms or any(_turned(old, status, kind) for kind in _SHOWN_AT_ONCE)
    due = may_write_at(situation.observed.last_status_write, now) if changed and not urgent else now
    write = confirms or (changed and due <= now)
    waiting = (recheck_at(old, status, due),) if changed and not write else ()
    moments = (*decision.requeue_at, *next_moments(situation, status))
    # What is due within a second is due for the policies at the next whole one: they see no fractions.
    whole = (_whole_second(moment) for moment in moments if moment > situation.now)
    waits = [*whole, *(moment for moment in waiting if moment > now)]
    return Plan(
        status=status if write else None,
        urgent=urgent,
        actions=actions,
        events=_events(situation, status) if write else (),
        requeue_after=min(waits) - now if waits else None,
        poll=() if status.finished else _targets(situation),
    )


def _events(situation: Situation, status: DDPJobStatus) -> tuple[Event, ...]:
    old, spec = situation.job.status, situation.spec
    remarks = _remarks(situation) if status.pods_created and status.attempt == 0 else []
    return events_between(
        old, status, max_restarts=spec.restart.max_restarts, remarks=remarks, change=situation.job.change
    )


def _remarks(situation: Situation) -> list[Event]:
    """What is said once, with the first pods."""
    spec, uid = situation.spec, situation.observed.found_claim
    said = [
        Event("Warning", "UnknownAccelerator", unknown_accelerator_remark(spec)),
        Event("Normal", "ClaimReused", reused_claim_remark(situation.job, spec.checkpoint, uid)),
    ]
    return [event for event in said if event.message]


def _whole_second(moment: datetime) -> datetime:
    """The first whole second that is not before this moment."""
    begun = moment.replace(microsecond=0)
    return begun if begun == moment else begun + timedelta(seconds=1)


def _targets(situation: Situation) -> tuple[PollTarget, ...]:
    # A node that may still wait for another answers where its first rank will.
    return tuple(dict.fromkeys((*rank_targets(situation), *rendezvous_targets(situation))))[:MOST_RANKS]


def _turned(old: DDPJobStatus | None, new: DDPJobStatus, kind: ConditionType) -> bool:
    return (old is not None and old.holds(kind)) != new.holds(kind)
