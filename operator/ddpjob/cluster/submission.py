"""Creates a job and what it needs: everything or nothing."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import delete_job, get_job
from ddpjob.cluster.transport import Json
from ddpjob.manifests.documents import Document, check_metadata, checked_job, named_namespace, placed, problems_at
from ddpjob.manifests.program import Script, config_map
from ddpjob.views.job import Job, job_of
from ddpjob_core.api.constants import KIND
from ddpjob_core.api.errors import AlreadyExists, ApiError, Invalid, NotFound, UsageProblem
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, JOBS, SERVICES, Resource

# Objects that a job may need; others are left to kubectl.
COMPANIONS: Final = {
    ("v1", "ConfigMap"): CONFIG_MAPS,
    ("v1", "Secret"): Resource("/api/v1", "secrets"),
    ("v1", "PersistentVolumeClaim"): CLAIMS,
    ("v1", "ServiceAccount"): Resource("/api/v1", "serviceaccounts"),
    ("v1", "Service"): SERVICES,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): Resource("/apis/autoscaling/v2", "horizontalpodautoscalers"),
}


@dataclass(frozen=True, slots=True)
class Submission:
    """What to create: the job, the other objects of its file, which are created first, and its script."""

    job: Document
    companions: tuple[Document, ...] = ()
    script: Script | None = None

    @property
    def documents(self) -> tuple[Document, ...]:
        """All objects of the file."""
        return (*self.companions, self.job)

    def manifests(self, namespace: str | None = None) -> list[Json]:
        """All objects, in an order in which they can be created.

        Args:
            namespace: None for that of the job, if it has one.

        Raises:
            UsageProblem: an object is in another namespace.
        """
        where = named_namespace(self.documents, namespace)
        made = [document.content for document in self.companions]
        if self.script is not None:
            made.append(config_map(self.script, self.job.name, where, None))
        return [placed(manifest, where) for manifest in (*made, self.job.content)]


def submission_of(documents: Sequence[Document]) -> Submission:
    """The submission in the documents of a file.

    Raises:
        UsageProblem: the job is not valid, or there are objects that only kubectl can create.
    """
    job = checked_job(documents)
    companions = tuple(document for document in documents if document is not job)
    for document in companions:
        if (document.content.get("apiVersion"), document.kind) not in COMPANIONS:
            known = ", ".join(sorted(kind for _, kind in COMPANIONS))
            raise UsageProblem(
                f"{document.place(('kind',))}: kind: ddpjob cannot create a {document.kind}, only {known}",
                f"kubectl apply -f {document.file}, then: ddpjob status {job.name}",
            )
        problems = check_metadata(document)
        if problems:
            raise UsageProblem("\n".join(map(str, problems)), "correct the file")
    return Submission(job, companions)


def submit(cluster: Cluster, submission: Submission, namespace: str | None = None) -> Job:
    """Create everything; if the job cannot be created, what this call has created is deleted again.

    Args:
        cluster: where.
        submission: what.
        namespace: None for that of the manifest, else the cluster's default.

    Raises:
        UsageProblem: an object of the file is in another namespace.
        ApiError: the API server refuses something; it names file and line where it can.
    """
    where = named_namespace(submission.documents, namespace) or cluster.namespace
    if submission.script is not None or submission.companions:
        # What can be refused is refused before anything is created.
        _make_job(cluster, submission.job, where, dry_run=True)
    if submission.script is not None:
        cluster.create(CONFIG_MAPS, config_map(submission.script, submission.job.name, where, None), dry_run=True)
    made: list[tuple[Resource, Json]] = []
    try:
        for document in submission.companions:
            resource = COMPANIONS[(document.content["apiVersion"], document.kind)]
            _make(cluster, resource, document, where, made)
        job = _make_job(cluster, submission.job, where)
    except BaseException:
        _undo(cluster, made)
        raise
    if submission.script is not None:
        _store_script(cluster, submission.script, job)
    return job


def _make_job(cluster: Cluster, document: Document, namespace: str, *, dry_run: bool = False) -> Job:
    manifest = placed(document.content, namespace)
    try:
        return job_of(cluster.create(JOBS, manifest, dry_run=dry_run))
    except AlreadyExists as taken:
        phase = get_job(cluster, document.name, namespace).status.phase.value
        raise AlreadyExists(
            f"{document.place(('metadata', 'name'))}: {KIND} {document.name} already exists and is {phase}",
            f"choose another name, or: ddpjob delete {document.name}",
        ) from taken
    except Invalid as invalid:
        raise _located(document, invalid) from invalid
    except NotFound as missing:
        raise NotFound(
            str(missing), missing.remedy or f"check that namespace {namespace} exists; -n chooses another"
        ) from missing


def _store_script(cluster: Cluster, script: Script, job: Job) -> None:
    # After the job, so that the job owns it from the start: a pod takes longer to start than this request.
    try:
        cluster.create(CONFIG_MAPS, config_map(script, job.name, job.namespace, job.record))
    except BaseException:
        with suppress(ApiError):
            delete_job(cluster, job)
        raise


def _make(
    cluster: Cluster, resource: Resource, document: Document, namespace: str, made: list[tuple[Resource, Json]]
) -> None:
    manifest = placed(document.content, namespace)
    try:
        made.append((resource, cluster.create(resource, manifest)))
    except AlreadyExists:
        # As kubectl apply does.
        cluster.patch(resource, manifest["metadata"]["namespace"], document.name, manifest)
    except Invalid as invalid:
        raise _located(document, invalid) from invalid


def _undo(cluster: Cluster, made: Sequence[tuple[Resource, Json]]) -> None:
    for resource, raw in reversed(made):
        metadata = raw["metadata"]
        with suppress(ApiError):
            cluster.delete(resource, metadata["namespace"], metadata["name"], uid=metadata["uid"])


def _located(document: Document, invalid: Invalid) -> Invalid:
    problems = problems_at(document, invalid.fields)
    message = "\n".join(map(str, problems)) if problems else f"{document.file}: {invalid}"
    return Invalid(message, invalid.remedy or "correct the file", invalid.fields)
