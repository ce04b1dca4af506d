"""Carries out the actions of a plan. Each is idempotent: it may be repeated, even after a crash."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ddpjob_core.api.constants import ANNOTATION_MEMBERSHIP, KIND
from ddpjob_core.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    WebhookFailed,
)
from ddpjob_core.api.kubernetes import Manifest, ObjectName, object_name
from ddpjob_core.api.membership import membership_text
from ddpjob_core.api.resources import CLAIMS, JOBS, PODS
from ddpjob_core.api.text import one_line
from ddpjob_core.children.actions import (
    Action,
    AnnounceMembership,
    Create,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeleteStray,
    object_of,
)
from ddpjob_core.children.metadata import labels_of_a_place
from ddpjob_core.children.pod import PodBuilder
from ddpjob_core.children.ssh_key import PRIVATE_KEY, PUBLIC_KEY
from ddpjob_core.engine.backlog import is_unanswered
from ddpjob_core.engine.caches import Caches
from ddpjob_core.engine.kinds import KINDS, Kind, Lookup, alteration
from ddpjob_core.engine.protocols import Json, NewSshKey, ObjectApi
from ddpjob_core.engine.window import in_window
from ddpjob_core.observations.observe import controller_uid, job_record, pod_record
from ddpjob_core.observations.observed import JobRecord, Rejection, RejectionKind
from ddpjob_core.observations.refusals import name_taken

MOST_PODS: Final = 512
"""Pods that one reconcile creates, or deletes: a job of thousands must not keep a worker, and is decided on again in
between."""
_FIRST_PODS: Final = 4
"""Pods of a job that are posted before the first answer: all of a small job, and few where the answer is a refusal."""
_LONGEST_UID: Final = 64
_BEING_DELETED: Final = "object is being deleted: "
"""How the API server begins its message if an object that already exists is being deleted."""
_DELETION: Final = "it is being deleted; what still uses it delays that"
_REJECTIONS: Final = (
    (Invalid, RejectionKind.INVALID),
    (Forbidden, RejectionKind.FORBIDDEN),
    (WebhookFailed, RejectionKind.UNAVAILABLE),
)
"""Errors that a creation is not simply repeated after, and what they mean for the object."""


@dataclass(slots=True)
class Outcome:
    """The outcome of the actions of one plan."""

    done: set[ObjectName] = field(default_factory=set)
    """Objects whose action succeeded."""
    rejected: list[Rejection] = field(default_factory=list)
    failed: dict[ObjectName, ApiError] = field(default_factory=dict)
    """Objects whose action failed."""
    not_created: dict[ObjectName, ApiError] = field(default_factory=dict)
    """Objects whose creation is among the failures."""
    known: set[ObjectName] = field(default_factory=set)
    """Objects that were created or found to exist and that no watch shows."""
    found_claim: str | None = None
    """Uid of a claim that exists and that the operator would have created."""
    more: bool = False
    """Whether pods were left for the next reconcile although nothing stood in the way."""


class ActionRunner:
    """Carries out actions and puts the answers into the caches, so that the next decision sees them immediately."""

    def __init__(self, kube: ObjectApi, caches: Caches, new_ssh_key: NewSshKey) -> None:
        self._kube = kube
        self._caches = caches
        self._new_ssh_key = new_ssh_key

    async def run(self, job: JobRecord, actions: Sequence[Action], *, skip: Callable[[ObjectName], bool]) -> Outcome:
        """Carry out what is not skipped: deletions and what pods need to start, then the pods, then the job's deletion.

        Args:
            job: whose actions they are.
            actions: in the plan's order.
            skip: whether an object is left alone for now.
        """
        outcome = Outcome()
        chosen = [action for action in actions if not skip(object_of(action))]
        # Nodes that stay hear of it before others leave, whose ranks ask all ranks to stop.
        announced = [action for action in chosen if isinstance(action, AnnounceMembership)]
        deletions = [action for action in chosen if isinstance(action, DeletePod | DeleteStray)]
        changed = (*announced, *deletions)
        shared = [action for action in chosen if isinstance(action, Create)]
        pods = [action for action in chosen if isinstance(action, CreatePod)]
        manifests = _Manifests(job)

        async def carry_out(action: Action) -> None:
            await self._one(job, action, outcome, manifests)

        def answers() -> bool:
            return not any(is_unanswered(failure) for failure in outcome.failed.values())

        await in_window(changed[:MOST_PODS], carry_out, go_on=answers)
        outcome.more = len(changed) > MOST_PODS and answers()
        await in_window(shared, carry_out)
        # A pod without its service or launcher would start only to wait, or to fail.
        if not outcome.failed and not outcome.rejected and not outcome.more:

            def go_on() -> bool:
                return not outcome.failed and not outcome.rejected and self._is_wanted(job)

            # An invalid manifest or a used-up quota stops all pods alike: a thousand requests are not needed to learn
            # that.
            await in_window(pods[:MOST_PODS], carry_out, go_on=go_on, first=_FIRST_PODS)
            outcome.more = len(pods) > MOST_PODS and go_on()
        if not outcome.failed and not outcome.more:
            await in_window([action for action in chosen if isinstance(action, DeleteJob)], carry_out)
        return outcome

    def _is_wanted(self, job: JobRecord) -> bool:
        """Whether the job has not changed since: one that was deleted, suspended or changed is decided on again."""
        now = self._caches.jobs.get(job.namespace, job.name)
        return now is not None and now.uid == job.uid and not now.deleting and now.generation == job.generation

    async def _one(self, job: JobRecord, action: Action, outcome: Outcome, manifests: "_Manifests") -> None:
        name = object_of(action)
        try:
            await self._carry_out(job, action, outcome, manifests)
        except _Unusable as found:
            outcome.rejected.append(Rejection(found.kind, name, name.without_end(str(found))))
        except ApiError as failure:
            kind = next((kind for error, kind in _REJECTIONS if isinstance(failure, error)), None)
            if isinstance(action, Create | CreatePod) and kind is not None:
                outcome.rejected.append(Rejection(kind, name, name.without_end(str(failure))))
                return
            outcome.failed[name] = failure
            if isinstance(action, Create | CreatePod) and not isinstance(failure, NotLeading):
                outcome.not_created[name] = failure
        else:
            outcome.done.add(name)

    async def _carry_out(self, job: JobRecord, action: Action, outcome: Outcome, manifests: "_Manifests") -> None:
        match action:
            case CreatePod(name):
                if not self._caches.holds_pod(job, name):
                    await self._create(job, manifests.of(action), outcome)
            case Create(manifest):
                await self._create(job, manifest, outcome)
            case AnnounceMembership():
                await self._announce(job.namespace, action)
            case DeletePod(name, uid, grace_seconds):
                await self._delete_pod(job.namespace, name, uid, grace_seconds)
            case DeleteStray(name, grace_seconds):
                await self._delete_stray(job, name, grace_seconds)
            case DeleteJob(uid):
                await self._delete_job(job, uid)

    async def _create(self, job: JobRecord, manifest: Manifest, outcome: Outcome) -> None:
        kind = KINDS[manifest["kind"]]
        if self._caches.holds(job, manifest):
            return
        if manifest["kind"] == "Secret":
            key = await asyncio.to_thread(self._new_ssh_key)
            manifest = {**manifest, "stringData": {PRIVATE_KEY: key.private, PUBLIC_KEY: key.public}}
        raw = await self._create_or_find(job, kind, manifest, outcome)
        changed = alteration(kind, job, manifest, raw)
        if changed:
            if kind.resource is PODS:
                await self._delete_altered(job, raw)
            raise _Unusable(RejectionKind.ALTERED, f"an admission webhook or policy has changed {changed}")
        if kind.watched:
            self._caches.remember(manifest["kind"], raw)
        else:
            outcome.known.add(object_name(manifest))

    async def _delete_altered(self, job: JobRecord, raw: Json) -> None:
        """Delete a pod that is another than was requested, before it is taken for one of the job's nodes."""
        metadata = raw["metadata"]
        # One that has no node yet is gone at once.
        grace = None if raw.get("spec", {}).get("nodeName") else 0
        await self._delete_pod(job.namespace, metadata["name"], metadata["uid"], grace)

    async def _create_or_find(self, job: JobRecord, kind: Kind, manifest: Manifest, outcome: Outcome) -> Json:
        """The object as the API server has it; only the manifest where an existing one cannot be read."""
        try:
            with _gone_or_contended():
                return await self._kube.create(kind.resource, manifest, strict=kind.strict)
        except AlreadyExists as taken:
            if kind.lookup is Lookup.NONE:
                if str(taken).startswith(_BEING_DELETED):
                    raise _Unusable(RejectionKind.BEING_DELETED, _DELETION) from taken
                return manifest
        # Created by a process that died, or by a request whose answer was lost; or it belongs to another owner.
        name = manifest["metadata"]["name"]
        read = self._kube.find if kind.lookup is Lookup.LIST else self._kube.get
        try:
            raw = await read(kind.resource, job.namespace, name)
        except NotFound as failure:
            raise Unavailable(f"{kind.resource.plural} {name} was deleted while it was being read") from failure
        if not kind.is_own(raw, job, manifest):
            raise _Unusable(RejectionKind.NAME_TAKEN, name_taken(_owner(raw)))
        if kind.resource is not PODS and raw["metadata"].get("deletionTimestamp"):
            # A pod that is being deleted is an observed one: it has failed.
            raise _Unusable(RejectionKind.BEING_DELETED, _DELETION)
        if kind.resource is CLAIMS:
            outcome.found_claim = one_line(str(raw["metadata"].get("uid")), _LONGEST_UID)
        if kind.repaired and alteration(kind, job, manifest, raw):
            return await self._put_right(kind, manifest, raw)
        return raw

    async def _put_right(self, kind: Kind, manifest: Manifest, raw: Json) -> Json:
        """The object with what was requested of it in place of what it has; the rest of its metadata stays."""
        wanted, metadata = manifest["metadata"], raw["metadata"]
        labels = {**(metadata.get("labels") or {}), **wanted["labels"]}
        changed = {**raw, **manifest, "metadata": {**metadata, "labels": labels}}
        try:
            return await self._kube.replace(kind.resource, changed)
        except (NotFound, Conflict) as failure:
            # Someone else is changing it at the same moment.
            raise Unavailable(str(failure)) from failure

    async def _announce(self, namespace: str, action: AnnounceMembership) -> None:
        name, uid, membership = action.name, action.uid, action.membership
        told: Json = {"uid": uid, "annotations": {ANNOTATION_MEMBERSHIP: membership_text(membership)}}
        if action.ordinal is not None:
            told["labels"] = labels_of_a_place(membership.attempt, action.ordinal)
        change = {"metadata": told}
        try:
            answer = await self._kube.patch(PODS, namespace, name, change)
        except NotFound:
            self._caches.pods.forget(namespace, name, uid)
            return
        except Conflict as failure:
            # Another pod has the name, which the watch will show, or others change this one at the same moment.
            raise Unavailable(str(failure)) from failure
        record = pod_record(answer)
        if record is not None:
            self._caches.pods.remember(record)

    async def _delete_pod(self, namespace: str, name: str, uid: str, grace_seconds: int | None) -> None:
        try:
            answer = await self._kube.delete(PODS, namespace, name, uid=uid, grace_seconds=grace_seconds)
        except (NotFound, Conflict):
            # The name is free, or another pod's: the one of this uid is gone for good.
            self._caches.pods.forget(namespace, name, uid)
            return
        metadata = answer.get("metadata") or {}
        record = pod_record(answer)
        if record is None or (metadata.get("deletionGracePeriodSeconds") == 0 and not metadata.get("finalizers")):
            self._caches.pods.forget(namespace, name, uid)
        else:
            self._caches.pods.remember(record)

    async def _delete_stray(self, job: JobRecord, name: str, grace_seconds: int | None) -> None:
        try:
            raw = await self._kube.find(PODS, job.namespace, name)
            if controller_uid(raw) == job.uid:
                uid = raw["metadata"]["uid"]
                await self._kube.delete(PODS, job.namespace, name, uid=uid, grace_seconds=grace_seconds)
        except (NotFound, Conflict):
            return

    async def _delete_job(self, job: JobRecord, uid: str) -> None:
        try:
            # A job that was changed in this moment, for example to be kept for longer, is decided on again.
            version = job.resource_version
            answer = await self._kube.delete(JOBS, job.namespace, job.name, uid=uid, resource_version=version)
        except NotFound:
            answer = {}
        record = job_record(answer) if answer.get("kind") == KIND else None
        if record is not None and record.deleting:
            # A finalizer that is not ours delays the deletion.
            self._caches.jobs.remember(record)
        else:
            self._caches.jobs.forget(job.namespace, job.name, uid)


@contextlib.contextmanager
def _gone_or_contended() -> Iterator[None]:
    """Answers that say nothing of the object being created are retried."""
    try:
        yield
    except NotFound as failure:
        # The namespace is being deleted, and the job with it.
        raise Unavailable(str(failure)) from failure
    except AlreadyExists:
        raise
    except Conflict as failure:
        # A quota that others are using at the same moment.
        raise Unavailable(str(failure)) from failure


class _Unusable(Exception):  # noqa: N818 caught right here
    """An object of that name exists and cannot be used; the text says why."""

    def __init__(self, kind: RejectionKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Manifests:
    """The manifests of a job's pods, made one at a time."""

    def __init__(self, job: JobRecord) -> None:
        self._job = job
        self._last: tuple[tuple[object, ...], PodBuilder] | None = None

    def of(self, action: CreatePod) -> Manifest:
        """The manifest of one pod."""
        wanted = (action.attempt, action.lost_nodes, action.membership)
        if self._last is None or self._last[0] != (*wanted, action.shared):
            assert self._job.spec is not None  # noqa: S101 nothing is created for a job that cannot be understood
            builder = PodBuilder(self._job, self._job.spec, *wanted, shared=action.shared)
            self._last = ((*wanted, action.shared), builder)
        return self._last[1].build_spare(action.spare) if action.spare else self._last[1].build(action.ordinal)


def _owner(raw: Json) -> str:
    for reference in raw.get("metadata", {}).get("ownerReferences") or []:
        if reference.get("controller"):
            # The API server takes any text for these.
            return one_line(f"{reference.get('kind')} {reference.get('name')} (uid {reference.get('uid')})", 253)
    return ""
