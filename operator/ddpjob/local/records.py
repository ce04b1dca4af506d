"""What is kept on disk of jobs that ran without a cluster, so that one that was stopped can resume."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ddpjob.local.errors import LocalError
from ddpjob_core.api.base import parse_time
from ddpjob_core.api.checkpoint import Retain
from ddpjob_core.api.names import claim_name
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Phase
from ddpjob_core.observations.suspension import STOPPING
from ddpjob_core.status.conditions import Fact, with_facts

KEPT_RUNS: Final = 5
"""How many finished jobs of a name are kept, with their logs."""
_FINISHED: Final = ("Succeeded", "Failed")
_STATE: Final = "job.json"
_LONGEST_PROGRAM: Final = 80


def default_home(environment: Mapping[str, str]) -> Path:
    """Where everything is kept: DDPJOB_HOME, else in the user's folder for the state of programs."""
    given = environment.get("DDPJOB_HOME")
    if given:
        return Path(given)
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "ddpjob"


@dataclass(frozen=True, slots=True)
class Records:
    """The folders of the jobs of one name, with their state and logs, and of the claims of the namespace."""

    home: Path
    namespace: str
    name: str

    @property
    def folder(self) -> Path:
        """Holds a folder for each job of the name, named by the job's uid."""
        return self.home / self.namespace / "jobs" / self.name

    @property
    def claims(self) -> Path:
        """Holds a folder for each claim of the namespace."""
        return self.home / self.namespace / "claims"

    def pod_folder(self, uid: str, pod: str) -> Path:
        """Logs and volumes of one pod of one job of this name."""
        return self.folder / uid / pod

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the job for this process.

        Raises:
            LocalError: another process runs it, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a+")
        except OSError as error:
            raise LocalError(f"cannot write to {self.folder}: {error}; set DDPJOB_HOME to another folder") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                raise LocalError(
                    f"{self.name} is already running, as process {lock.read().strip()}",
                    "to run this one at the same time, give it another name (--name, metadata.name)",
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def left(self) -> list[dict[str, Any]]:
        """The jobs of this name as they were left, oldest first, except those that cannot be read."""
        found = []
        for file in self.folder.glob(f"*/{_STATE}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                job = json.loads(file.read_text(encoding="utf-8"))
                metadata = job["metadata"]
                # A copied folder is not the job's.
                if metadata["uid"] == file.parent.name:
                    found.append((metadata["creationTimestamp"], file.stat().st_mtime, job))
        return [job for *_, job in sorted(found, key=lambda each: each[:2])]

    def prune(self, left: Sequence[Mapping[str, Any]]) -> None:
        """Delete all finished jobs except the newest, with the checkpoints that are not retained.

        Args:
            left: the jobs of this name, oldest first.
        """
        finished = [job for job in left if _has_finished(job)]
        for job in finished[:-KEPT_RUNS]:
            uid, checkpoint = job["metadata"]["uid"], job["spec"].get("checkpoint") or {}
            # As on a cluster: a claim of the user's own stays, whatever `retain` says.
            if checkpoint.get("size") is not None and checkpoint.get("retain") == Retain.DELETE.value:
                shutil.rmtree(self.claims / claim_name(self.name) / uid, ignore_errors=True)
            shutil.rmtree(self.folder / uid, ignore_errors=True)

    def save(self, job: Mapping[str, Any]) -> None:
        """Write the job's state; a reader sees either the old one or this one."""
        file = self.folder / job["metadata"]["uid"] / _STATE
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(job), encoding="utf-8")
        new.replace(file)


def job_to_resume(
    left: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, list[Mapping[str, Any]]]:
    """The unfinished job that a manifest resumes, which has its spec, and the unfinished ones with another spec.

    Args:
        left: jobs of the name, oldest first.
        asked: the manifest.
    """
    unfinished = [job for job in left if not _has_finished(job)]
    same = [job for job in unfinished if _spec(job) == _spec(asked)]
    return (same[-1] if same else None), [job for job in unfinished if job not in same]


def _has_finished(job: Mapping[str, Any]) -> bool:
    return (job.get("status") or {}).get("phase") in _FINISHED


def left_unfinished(unfinished: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """A line about the last of these unfinished jobs, and the number of the others.

    Args:
        unfinished: jobs of one name, at least one.
        folder: of the name.
    """
    last, more = unfinished[-1], len(unfinished) - 1
    metadata, trainer, status = last["metadata"], last["spec"]["trainer"], last.get("status") or {}
    program = trainer.get("command") or [trainer.get("script") or trainer.get("module")]
    runs = " ".join(map(str, [*program, *(trainer.get("args") or [])]))
    step = (status.get("progress") or {}).get("step")
    return (
        f"{metadata['name']} was left unfinished{f' at step {step}' if step is not None else ''}, running "
        f"{runs if len(runs) <= _LONGEST_PROGRAM else runs[: _LONGEST_PROGRAM - 1] + '…'}"
        f"{f', and {more} more' if more else ''}: run that command to resume it, "
        f"or delete {folder / metadata['uid']}"
    )


def to_be_resumed(left: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """An unfinished job in the state of a suspended one: the next attempt follows, and is not counted.

    If it was not suspended, its runner was killed. Its pods are gone, which does not count as their failure.
    """
    metadata, status = left["metadata"], DDPJobStatus.model_validate(left.get("status") or {})
    resumed = {**left, "spec": {**left["spec"], "suspend": False}}
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and (suspended.status == "True" or suspended.reason == STOPPING):
        return resumed
    fact = Fact(ConditionType.SUSPENDED, "True", "RunnerGone", f"the runner of attempt {status.attempt} was killed")
    # Pods may have been started before any status was written, and a pod's name is used only once.
    start = status.start_time or parse_time(metadata["creationTimestamp"])
    update = {"phase": Phase.SUSPENDED, "start_time": start}
    marked = with_facts(status.model_copy(update=update), (fact,), metadata["generation"], now)
    return {**resumed, "status": marked.to_wire()}


def _spec(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (job.get("spec") or {}).items() if name != "suspend"}
