"""DDPJobs from Python, as in a notebook: `from ddpjob import DDPJob`."""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.connection import Target, open_cluster
from ddpjob.cluster.jobs import delete_job, follow, get_job, set_nodes, set_suspend
from ddpjob.cluster.log_streams import follow_logs, sources_to_follow
from ddpjob.cluster.logs import LogLine, read_logs, sources_of
from ddpjob.cluster.submission import Submission, submission_of, submit
from ddpjob.manifests.documents import Document
from ddpjob.manifests.files import read_bytes, read_manifest
from ddpjob.manifests.names import check_job_name, check_namespace
from ddpjob.manifests.program import Request, job_manifest, name_for, script_of
from ddpjob_core.api.errors import DDPJobError, JobFailed, TooLong
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Failure

__all__ = ["DDPJob", "DDPJobError", "JobFailed", "LogLine", "Result"]

_SUFFIX_BYTES: Final = 3
_TRACEBACK_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job that succeeded: its last status, and the most important numbers."""

    status: DDPJobStatus
    loss: float | None
    step: int | None
    restarts: int


class DDPJob:
    """A job in a cluster. The constructor does not create one: `submit` and `from_file` do."""

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """An existing job.

        Args:
            name: of the DDPJob.
            namespace: None for that of the kubeconfig's context.
            context: of the kubeconfig.
            kubeconfig: file; None for $KUBECONFIG, else ~/.kube/config, else the service account of this pod.
            cluster: an open one, instead of context and kubeconfig.

        Raises:
            UsageProblem: the name or the namespace is not valid.
            NotFound: the job does not exist.
        """
        check_job_name(name, "name")
        if namespace is not None:
            check_namespace(namespace, "namespace")
        self._cluster = cluster or open_cluster(Target(namespace, context, kubeconfig))
        self._job = get_job(self._cluster, name, namespace)

    @classmethod
    def submit(
        cls,
        script: str | Path | None = None,
        *args: str,
        image: str,
        module: str | None = None,
        nodes: int = 1,
        procs_per_node: int | str = "auto",
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        cluster: Cluster | None = None,
    ) -> Self:
        """Create a job that runs a script of this machine, or a module of the image.

        Args:
            script: file with the program; it is stored with the job and deleted with it.
            args: arguments of the program.
            image: image with Python 3 and torch.
            module: module of the image, instead of a script.
            nodes: number of nodes, one pod each.
            procs_per_node: processes per node, or "auto".
            env: environment variables.
            name: of the job; None for the name of the program and a suffix.
            namespace: as for an existing job.
            context: as for an existing job.
            kubeconfig: as for an existing job.
            cluster: as for an existing job.

        Raises:
            UsageProblem: an argument is not valid, or the script cannot be read.
            ApiError: the API server cannot be reached, or refuses the job.
        """
        program = script_of(str(script), read_bytes(Path(script))) if script is not None else None
        chosen = name or name_for(module or str(script), secrets.token_hex(_SUFFIX_BYTES))
        manifest = job_manifest(Request(chosen, image, program, module, args, nodes, procs_per_node, env, namespace))
        submission = replace(submission_of([Document(f"DDPJob {chosen}", manifest)]), script=program)
        return cls._made(submission, cluster or open_cluster(Target(namespace, context, kubeconfig)), namespace)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        cluster: Cluster | None = None,
    ) -> Self:
        """Create the job of a manifest file, with the ConfigMaps, Secrets and claims in the same file.

        Raises:
            UsageProblem: the file cannot be read, or the manifest is not valid; the message names file, line and field.
            ApiError: the API server cannot be reached, or refuses the job.
        """
        if namespace is not None:
            check_namespace(namespace, "namespace")
        submission = submission_of(read_manifest(Path(path)))
        return cls._made(submission, cluster or open_cluster(Target(namespace, context, kubeconfig)), namespace)

    @classmethod
    def _made(cls, submission: Submission, cluster: Cluster, namespace: str | None) -> Self:
        job = submit(cluster, submission, namespace)
        return cls(job.name, namespace=job.namespace, cluster=cluster)

    def __repr__(self) -> str:
        return f"DDPJob({self.name!r}, namespace={self.namespace!r}, phase={self._job.status.phase.value!r})"

    def __enter__(self) -> Self:
        """The job is deleted at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.delete()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self._job.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self._job.namespace

    @property
    def status(self) -> DDPJobStatus:
        """The status as it is now."""
        self._job = get_job(self._cluster, self.name, self.namespace)
        return self._job.status

    def watch(
        self, *, timeout: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[DDPJobStatus]:
        """The status as it is now and after each change, until the job has ended.

        Args:
            timeout: seconds that the job may still take, None for no limit.
            clock: a monotonic clock.

        Raises:
            NotFound: the job was deleted.
            TooLong: the job has not ended in time.
        """
        until = math.inf if timeout is None else clock() + timeout
        for job in follow(self._cluster, self._job, patience=lambda: until - clock()):
            self._job = job
            yield job.status
            if job.status.finished:
                return
            if clock() >= until:
                raise TooLong(f"{self.name} is still {job.status.phase.value} after {timeout:g} s")

    def result(self, *, timeout: float | None = None) -> Result:
        """Wait until the job has succeeded.

        Args:
            timeout: as in `watch`.

        Raises:
            JobFailed: it has failed; the message holds the root cause and its traceback.
            NotFound: it was deleted.
            TooLong: it has not ended in time.
        """
        for _ in self.watch(timeout=timeout):
            pass
        status = self._job.status
        if status.holds(ConditionType.FAILED):
            raise failure_of(self.name, status)
        progress, restarts = status.progress, status.restarts
        return Result(
            status=status,
            loss=progress.loss if progress is not None else None,
            step=progress.step if progress is not None else None,
            restarts=restarts.counted + restarts.ignored,
        )

    def logs(self, *, rank: int | None = None, attempt: int | None = None, follow: bool = False) -> Iterator[LogLine]:
        """The output of the nodes, merged by time.

        Args:
            rank: only the node of this global rank.
            attempt: an earlier attempt whose pods are kept.
            follow: wait for the pods, and continue until the attempt ends.

        Raises:
            NotFound: the log no longer exists.
        """
        self._job = get_job(self._cluster, self.name, self.namespace)
        if follow:
            sources = sources_to_follow(self._cluster, self._job, attempt=attempt, rank=rank)
            yield from follow_logs(self._cluster, self._job, sources)
        else:
            sources = sources_of(self._cluster, self._job, attempt=attempt, rank=rank)
            yield from read_logs(self._cluster, self.namespace, sources)

    def suspend(self) -> None:
        """Ask the ranks to save and exit; the job has no pods until `resume`."""
        self._job = set_suspend(self._cluster, self._job, suspend=True)

    def resume(self) -> None:
        """Continue after `suspend`."""
        self._job = set_suspend(self._cluster, self._job, suspend=False)

    def scale(self, nodes: int) -> None:
        """Change the number of nodes of a job that is suspended, or has failed for its spec."""
        self._job = set_nodes(self._cluster, self._job, nodes)

    def delete(self) -> None:
        """Delete the job with everything that it owns; it may be gone already."""
        delete_job(self._cluster, self._job)


def failure_of(name: str, status: DDPJobStatus) -> JobFailed:
    """The error for a failed job: reason, root cause, and the end of the traceback."""
    failed = status.condition(ConditionType.FAILED)
    why = f": {failed.reason}: {failed.message}" if failed is not None else ""
    return JobFailed(f"{name} has failed{why}{_cause(status.failure)}", f"ddpjob why {name}")


def _cause(failure: Failure | None) -> str:
    if failure is None or not failure.traceback:
        return ""
    return "\n" + "\n".join(failure.traceback.rstrip().split("\n")[-_TRACEBACK_LINES:])
