"""What is kept on disk of jobs that ran without a cluster, so that one that was stopped can go on."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ddpjob.api.status import ConditionType, DDPJobStatus, Phase
from ddpjob.local.errors import LocalError
from ddpjob.policies.conditions import Fact, with_facts
from ddpjob.policies.suspend import STOPPING

_FINISHED: Final = ("Succeeded", "Failed")


def default_home(environment: Mapping[str, str]) -> Path:
    """Where all is kept: DDPJOB_HOME, else the user's folder for the state of programs."""
    given = environment.get("DDPJOB_HOME")
    if given:
        return Path(given)
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "ddpjob"


@dataclass(frozen=True, slots=True)
class Records:
    """The folder of one job: the job as it was left, its logs, and the claims of its namespace."""

    home: Path
    namespace: str
    name: str

    @property
    def folder(self) -> Path:
        """The job's folder."""
        return self.home / self.namespace / "jobs" / self.name

    @property
    def claims(self) -> Path:
        """Where the claims of the namespace have their files."""
        return self.home / self.namespace / "claims"

    def pod_folder(self, uid: str, pod: str) -> Path:
        """Logs and volumes of one pod of one job of this name."""
        return self.folder / uid / pod

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the job for this process.

        Raises:
            LocalError: another process runs it, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a+")
        except OSError as error:
            raise LocalError(f"{self.folder} cannot be written: {error}; DDPJOB_HOME names another place") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                raise LocalError(f"{self.name} runs already, as process {lock.read().strip()}") from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def load(self) -> dict[str, Any] | None:
        """The job as it was left; None where there is none or where it cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.folder / "job.json").read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        return None

    def save(self, job: Mapping[str, Any]) -> None:
        """Keep the job as it is; a reader sees the old state or this one."""
        new = self.folder / "job.json.new"
        new.write_text(json.dumps(job), encoding="utf-8")
        new.replace(self.folder / "job.json")


def goes_on(left: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> bool:
    """Whether a job is the one that was left unfinished: the same spec, but for being suspended."""
    if left is None:
        return False
    phase = (left.get("status") or {}).get("phase")
    return phase not in _FINISHED and _spec(left) == _spec(asked)


def to_be_resumed(left: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """A job that was left unfinished, as one that was suspended: the next attempt follows, and is not counted.

    One that was not suspended is one whose runner was killed. Its pods are gone, which was no failure of theirs.
    """
    metadata, status = left["metadata"], DDPJobStatus.model_validate(left.get("status") or {})
    resumed = {**left, "spec": {**left["spec"], "suspend": False}}
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and (suspended.status == "True" or suspended.reason == STOPPING):
        return resumed
    fact = Fact(ConditionType.SUSPENDED, "True", "RunnerGone", f"what ran attempt {status.attempt} was killed")
    # Pods may have been started that nothing was written of, and a name is used once.
    start = status.start_time or datetime.fromisoformat(metadata["creationTimestamp"])
    update = {"phase": Phase.SUSPENDED, "start_time": start}
    marked = with_facts(status.model_copy(update=update), (fact,), metadata["generation"], now)
    return {**resumed, "status": marked.to_wire()}


def _spec(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (job.get("spec") or {}).items() if name != "suspend"}
