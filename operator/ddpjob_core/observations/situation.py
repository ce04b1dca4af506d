"""The input of a policy."""

from dataclasses import dataclass, replace
from datetime import datetime

from ddpjob_core.api.membership import generations_of, parse_membership, spares_of
from ddpjob_core.api.names import attempt_of, parse_spare_pod_name
from ddpjob_core.api.network_policy import Isolation
from ddpjob_core.api.ordinals import parse_ordinals
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus, Membership
from ddpjob_core.api.template import on_host_network
from ddpjob_core.observations.advice import Advice
from ddpjob_core.observations.attempt import Attempt, current_attempt, view_attempt
from ddpjob_core.observations.observed import JobRecord, Observed, Rejection
from ddpjob_core.observations.progress import reported_progress, with_restarts


@dataclass(frozen=True, slots=True)
class Situation:
    """One job with a spec that can be understood, and its pods seen as attempts.

    `status` is what was last written, or what could be rebuilt from the pods where nothing was. `membership` says which
    nodes of an elastic job train together; it is None for other jobs, and before an attempt has one. `isolation` says
    who may connect to pods, None where the operator leaves that to others. `spares_refused` are refusals of the pods
    of spare nodes, which `observed` then does not have: they concern nothing else.
    """

    observed: Observed
    spec: DDPJobSpec
    status: DDPJobStatus
    attempt: Attempt
    advice: Advice
    membership: Membership | None = None
    isolation: Isolation | None = None
    spares_refused: tuple[Rejection, ...] = ()

    @property
    def job(self) -> JobRecord:
        """The job itself."""
        return self.observed.job

    @property
    def now(self) -> datetime:
        """The moment that all policies decide for."""
        return self.observed.now

    @property
    def on_host_network(self) -> bool:
        """Whether the pods share the network of their nodes, where no NetworkPolicy applies to them."""
        return on_host_network(self.spec.template)

    @property
    def isolated_by(self) -> Isolation | None:
        """What the job's NetworkPolicy is made by; None where it gets none."""
        return None if self.on_host_network else self.isolation


def situation_of(observed: Observed, spec: DDPJobSpec, advice: Advice, isolation: Isolation | None = None) -> Situation:
    """The situation of a job with this spec, as the pods show it."""
    number = current_attempt(observed.job, observed.pods)
    refused = tuple(each for each in observed.rejections if _is_spare(observed.job.name, each))
    if refused:
        observed = replace(observed, rejections=tuple(each for each in observed.rejections if each not in refused))
    # What is lost with a status, the pods still know: spec.nodes may ask for fewer than train, or for more.
    membership = membership_of(observed.job.status, spec, number) or _known_to_pods(observed, spec, number)
    attempt = _view(observed, spec, number, membership)
    status = _up_to_date(observed, attempt)
    return Situation(observed, spec, status, attempt, advice, membership, isolation, refused)


def _is_spare(job: str, refused: Rejection) -> bool:
    return refused.object.kind == "Pod" and parse_spare_pod_name(job, refused.object.name) is not None


def as_decided(situation: Situation, status: DDPJobStatus) -> Situation:
    """The situation in which the nodes that a decided status names train together."""
    number = situation.attempt.number
    membership = membership_of(status, situation.spec, number) or situation.membership
    if membership == situation.membership:
        return situation
    attempt = _view(situation.observed, situation.spec, number, membership)
    return replace(situation, attempt=attempt, membership=membership)


def membership_of(status: DDPJobStatus | None, spec: DDPJobSpec, attempt: int) -> Membership | None:
    """The membership of an elastic job's attempt; None where it has not been written, or cannot be meant."""
    written = status.membership if status is not None and spec.elastic is not None else None
    if written is None or written.attempt != attempt or written.nodes > spec.most_nodes:
        return None
    return written


def _known_to_pods(observed: Observed, spec: DDPJobSpec, attempt: int) -> Membership | None:
    """The newest membership that a pod of the attempt knows."""
    if spec.elastic is None:
        return None
    known = [
        parse_membership(pod.membership, attempt, spec.most_nodes)
        for pod in observed.pods
        if attempt_of(observed.job.name, pod.name) == attempt
    ]
    return max((each for each in known if each is not None), key=lambda each: each.generation, default=None)


def _view(observed: Observed, spec: DDPJobSpec, number: int, membership: Membership | None) -> Attempt:
    nodes = spec.nodes if membership is None else membership.nodes
    members = {} if membership is None else generations_of(membership)
    lost = None if membership is None else membership.rejoining
    named = {} if membership is None else spares_of(membership)
    spares = membership.spares if membership is not None else None
    awaited = {} if lost is None or lost.created else {at: each for at, each in members.items() if each > lost.after}
    return view_attempt(
        observed.job.name,
        number,
        nodes,
        observed.pods,
        most=spec.most_nodes,
        succeeded=_succeeded(observed.job.status, nodes, elastic=spec.elastic is not None),
        vanished=observed.vanished,
        members=members,
        awaited=frozenset(awaited) - named.keys(),
        named=named,
        waiting=frozenset(each.number for each in (spares.waiting or ())) if spares is not None else frozenset(),
    )


def _up_to_date(observed: Observed, attempt: Attempt) -> DDPJobStatus:
    """What was written last, with the progress that has been reported since: the policies count by it."""
    written = observed.job.status
    status = written or DDPJobStatus(attempt=attempt.number)
    reported = None if status.finished else reported_progress(observed, attempt)
    if reported is None:
        return status
    return with_restarts(status.model_copy(update={"progress": reported[0]}), written)


def _succeeded(written: DDPJobStatus | None, nodes: int, *, elastic: bool) -> frozenset[int]:
    known = written.nodes if written is not None and written.pods_created else None
    # What an elastic job asks for may have changed since; its members have not, once one has succeeded.
    if known is None or (known.desired != nodes and not elastic):
        return frozenset()
    return parse_ordinals(known.succeeded_ordinals or "", nodes)
