"""Carries the actions of a plan out. Each is idempotent: done twice or by a process that died, all is well."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ddpjob_core.api.constants import KIND, LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Resource
from ddpjob_core.children.actions import (
    Action,
    Create,
    CreateClaim,
    CreateLauncher,
    CreatePod,
    CreateService,
    CreateSshKey,
    DeleteJob,
    DeletePod,
    DeleteStray,
)
from ddpjob_core.children.ssh_key import PRIVATE_KEY, PUBLIC_KEY
from ddpjob_core.engine.caches import Caches
from ddpjob_core.engine.errors import AlreadyExists, ApiFailure, Conflict, Forbidden, Invalid, NotFound, Retryable
from ddpjob_core.engine.protocols import Json, NewSshKey, ObjectApi
from ddpjob_core.observations.observe import controller_uid, job_record, pod_record, service_record
from ddpjob_core.observations.observed import JobRecord, Rejection, RejectionKind
from ddpjob_core.observations.refusals import object_name

_LARGEST_BATCH: Final = 64


@dataclass(slots=True)
class Outcome:
    """What became of the actions of one plan."""

    done: set[str] = field(default_factory=set)
    """Objects whose action succeeded, as `pod digits-a0-1`."""
    rejected: list[Rejection] = field(default_factory=list)
    failures: list[ApiFailure] = field(default_factory=list)
    launcher_attempt: int | None = None
    claim_attempt: int | None = None
    ssh_key_attempt: int | None = None


class ActionRunner:
    """Carries actions out and puts the answers into the caches, so that the next decision sees them at once."""

    def __init__(self, kube: ObjectApi, caches: Caches, new_ssh_key: NewSshKey) -> None:
        self._kube = kube
        self._caches = caches
        self._new_ssh_key = new_ssh_key

    async def run(self, job: JobRecord, actions: Sequence[Action], *, skip: Callable[[str], bool]) -> Outcome:
        """Carry out what is not skipped: deletions and what pods need to start, then the pods, the job's deletion last.

        Args:
            job: whose actions they are.
            actions: in the plan's order.
            skip: whether an object, named as `pod digits-a0-1`, is to be left alone for now.
        """
        outcome = Outcome()
        chosen = [action for action in actions if not skip(object_of(action))]
        deletions = [action for action in chosen if isinstance(action, DeletePod | DeleteStray)]
        pods = [action for action in chosen if isinstance(action, CreatePod)]
        shared = [action for action in chosen if isinstance(action, Create) and not isinstance(action, CreatePod)]
        await self._together(job, (*deletions, *shared), outcome)
        # A pod without its service or launcher would start only to wait, or to fail.
        if not outcome.failures and not outcome.rejected:
            await self._in_growing_batches(job, pods, outcome)
        if not outcome.failures:
            await self._together(job, [action for action in chosen if isinstance(action, DeleteJob)], outcome)
        return outcome

    async def _in_growing_batches(self, job: JobRecord, actions: Sequence[Action], outcome: Outcome) -> None:
        # A manifest or a quota refuses all pods alike: a thousand requests are not needed to learn that.
        size, rest = 1, list(actions)
        while rest and not outcome.failures and not outcome.rejected:
            batch, rest = rest[:size], rest[size:]
            await self._together(job, batch, outcome)
            size = min(size * 2, _LARGEST_BATCH)

    async def _together(self, job: JobRecord, actions: Iterable[Action], outcome: Outcome) -> None:
        await asyncio.gather(*(self._one(job, action, outcome) for action in actions))

    async def _one(self, job: JobRecord, action: Action, outcome: Outcome) -> None:
        name = object_of(action)
        try:
            await self._carry_out(job, action, outcome)
        except _Taken as taken:
            outcome.rejected.append(Rejection(RejectionKind.NAME_TAKEN, name, str(taken)))
        except (Invalid, Forbidden) as failure:
            if isinstance(action, DeletePod | DeleteStray | DeleteJob):
                outcome.failures.append(failure)
            else:
                kind = RejectionKind.INVALID if isinstance(failure, Invalid) else RejectionKind.FORBIDDEN
                outcome.rejected.append(Rejection(kind, name, str(failure)))
        except ApiFailure as failure:
            outcome.failures.append(failure)
        else:
            outcome.done.add(name)

    async def _carry_out(self, job: JobRecord, action: Action, outcome: Outcome) -> None:
        match action:
            case CreatePod(manifest):
                await self._create_pod(job, manifest)
            case CreateService(manifest):
                await self._create_service(job, manifest)
            case CreateLauncher(manifest, attempt):
                await self._create_or_own(job, CONFIG_MAPS, manifest, strict=False)
                outcome.launcher_attempt = attempt
            case CreateClaim(manifest, attempt):
                await self._create_claim(job, manifest)
                outcome.claim_attempt = attempt
            case CreateSshKey(manifest, attempt):
                await self._create_ssh_key(manifest)
                outcome.ssh_key_attempt = attempt
            case DeletePod(name, uid, grace_seconds):
                await self._delete_pod(job.namespace, name, uid, grace_seconds)
            case DeleteStray(name, grace_seconds):
                await self._delete_stray(job, name, grace_seconds)
            case DeleteJob(uid):
                await self._delete_job(job, uid)

    async def _create_pod(self, job: JobRecord, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        cached = self._caches.pods.get(job.namespace, name)
        if cached is not None and cached.owner_uid == job.uid:
            return
        raw = await self._create_or_own(job, PODS, manifest, strict=True)
        if raw["metadata"].get("labels", {}).get(LABEL_MANAGED_BY) != MANAGED_BY:
            # Remembered, it would never change again: the watch does not show it.
            raise _Taken(f"it is this job's, but its label {LABEL_MANAGED_BY} was changed: delete the pod")
        record = pod_record(raw)
        if record is not None:
            self._caches.pods.remember(record)

    async def _create_service(self, job: JobRecord, manifest: Manifest) -> None:
        raw = await self._create_or_own(job, SERVICES, manifest, strict=False)
        record = service_record(raw)
        if record is not None:
            self._caches.services.remember(record)

    async def _create_claim(self, job: JobRecord, manifest: Manifest) -> None:
        owned = "ownerReferences" in manifest["metadata"]

        def is_own(raw: Json) -> bool:
            labels = raw.get("metadata", {}).get("labels") or {}
            kept = labels.get(LABEL_MANAGED_BY) == MANAGED_BY and labels.get(LABEL_JOB) == job.name
            # One that is retained has no owner: it was made for a job of this name, and is used again by the next one.
            return controller_uid(raw) == job.uid or (not owned and kept and controller_uid(raw) is None)

        await self._create_or_own(job, CLAIMS, manifest, strict=False, is_own=is_own)

    async def _create_ssh_key(self, manifest: Manifest) -> None:
        key = await asyncio.to_thread(self._new_ssh_key)
        data = {PRIVATE_KEY: key.private, PUBLIC_KEY: key.public}
        # One that is there cannot be looked at: its name, with the job's uid, says whose it is.
        with contextlib.suppress(AlreadyExists), _gone_or_contended():
            await self._kube.create(SECRETS, {**manifest, "stringData": data}, strict=False)

    async def _create_or_own(
        self,
        job: JobRecord,
        resource: Resource,
        manifest: Manifest,
        *,
        strict: bool,
        is_own: Callable[[Json], bool] | None = None,
    ) -> Json:
        is_own = is_own or (lambda raw: controller_uid(raw) == job.uid)
        with contextlib.suppress(AlreadyExists), _gone_or_contended():
            return await self._kube.create(resource, manifest, strict=strict)
        # Made by a process that died, or by a request whose answer was lost, or somebody else's.
        name = manifest["metadata"]["name"]
        try:
            raw = await self._kube.get(resource, job.namespace, name)
        except NotFound as failure:
            raise Retryable(f"{resource.plural} {name} went away while it was looked at") from failure
        if not is_own(raw):
            raise _Taken(f"it belongs to {_owner(raw)}")
        return raw

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
            raw = await self._kube.get(PODS, job.namespace, name)
            if controller_uid(raw) == job.uid:
                uid = raw["metadata"]["uid"]
                await self._kube.delete(PODS, job.namespace, name, uid=uid, grace_seconds=grace_seconds)
        except (NotFound, Conflict):
            return

    async def _delete_job(self, job: JobRecord, uid: str) -> None:
        try:
            answer = await self._kube.delete(JOBS, job.namespace, job.name, uid=uid)
        except (NotFound, Conflict):
            answer = {}
        record = job_record(answer) if answer.get("kind") == KIND else None
        if record is not None and record.deleting:
            # A finalizer of somebody else's keeps it.
            self._caches.jobs.remember(record)
        else:
            self._caches.jobs.forget(job.namespace, job.name, uid)


@contextlib.contextmanager
def _gone_or_contended() -> Iterator[None]:
    """What is no answer about the object that is being created is tried again."""
    try:
        yield
    except NotFound as failure:
        # The namespace is on its way out; the job will be, too.
        raise Retryable(str(failure)) from failure
    except AlreadyExists:
        raise
    except Conflict as failure:
        # A quota that others use at the same moment.
        raise Retryable(str(failure)) from failure


class _Taken(Exception):  # noqa: N818 caught right here
    """The name is held by somebody else, whom the text names."""


def object_of(action: Action) -> str:
    """Kind and name of what an action is about, as `pod digits-a0-1`."""
    match action:
        case (
            CreatePod(manifest)
            | CreateService(manifest)
            | CreateLauncher(manifest)
            | CreateClaim(manifest)
            | CreateSshKey(manifest)
        ):
            return object_name(manifest)
        case DeletePod(name) | DeleteStray(name):
            return f"deletion of pod {name}"
        case DeleteJob():
            return "deletion of the job"


def _owner(raw: Json) -> str:
    for reference in raw.get("metadata", {}).get("ownerReferences") or []:
        if reference.get("controller"):
            return f"{reference.get('kind')} {reference.get('name')} (uid {reference.get('uid')})"
    return "nobody that is known"
