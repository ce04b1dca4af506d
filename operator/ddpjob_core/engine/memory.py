"""What this process knows of each job besides the caches: one object per job, dropped when the job is gone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.engine.backlog import Backlog
from ddpjob_core.engine.brake import Brake
from ddpjob_core.engine.limiter import Turn
from ddpjob_core.engine.refused_status import RefusedStatus
from ddpjob_core.engine.store import Key
from ddpjob_core.engine.vanished import VanishedPods
from ddpjob_core.observations.observed import Rejection
from ddpjob_core.wire.progress import PollTarget, ProgressReport
from ddpjob_core.wire.rank_report import RankReport, RendezvousWait


@dataclass(slots=True)
class Polled:
    """What the poller reads for a job, and what it has read.

    Attributes:
        targets: ranks that are asked; none stops the polls and keeps what was read last.
        report: last answer of rank 0, in any attempt.
        ranks: what each rank answered last.
        unanswered: targets of which the last poll brought no progress.
        waits: last answers of the nodes that are waiting for another node, by ordinal.
    """

    targets: tuple[PollTarget, ...] = ()
    report: ProgressReport | None = None
    ranks: dict[int, RankReport] = field(default_factory=dict)
    unanswered: set[PollTarget] = field(default_factory=set)
    waits: dict[int, RendezvousWait] = field(default_factory=dict)


@dataclass(slots=True)
class JobMemory:
    """What is known of one job. Losing it costs a request or two, never correctness.

    Attributes:
        uid: the job's uid.
        key: the job's namespace and name.
        seed: of the names that nobody else may know before the objects exist.
        attempt: the attempt that `known` and `rejections` belong to.
        known: objects that no watch shows, and when each was last created or found to exist.
        found_claim: uid of the claim for checkpoints that the attempt has found instead of creating it.
        rejections: objects that the API server refused, with the refusal and when it was last received.
        failing: since when each object could not be created, each try having failed in a way that may pass by itself.
        taken_over: since when this process decides about the job.
        inherited: whether another process decided about it before, and this one has not written its status since.
        brake: how often its reconciles have acted lately.
        last_status_write: when this process last wrote the status.
        refused: the status that the API server last refused, None if it has accepted the last one.
        turn: the job's place in the order of progress writes.
        vanished: pods that no longer exist, as they ended.
        backlog: what is left of its actions.
        polled: progress.
    """

    uid: str
    key: Key
    seed: str = ""
    attempt: int = 0
    known: dict[ObjectName, datetime] = field(default_factory=dict)
    found_claim: str | None = None
    rejections: dict[ObjectName, tuple[Rejection, datetime]] = field(default_factory=dict)
    failing: dict[ObjectName, datetime] = field(default_factory=dict)
    taken_over: datetime | None = None
    inherited: bool = False
    brake: Brake = field(default_factory=Brake)
    last_status_write: datetime | None = None
    refused: RefusedStatus | None = None
    turn: Turn = field(default_factory=Turn)
    vanished: VanishedPods = field(default_factory=VanishedPods)
    backlog: Backlog = field(default_factory=Backlog)
    polled: Polled = field(default_factory=Polled)

    def enter(self, attempt: int) -> None:
        """Forget what belongs to another attempt than this one."""
        if attempt != self.attempt:
            self.attempt = attempt
            self.forget_answers()

    def forget_answers(self) -> None:
        """Forget what only answers to this process's own requests have shown."""
        self.known.clear()
        self.found_claim = None
        self.rejections.clear()
        self.failing.clear()


class Memories:
    """The memory of every job, by the job's uid."""

    def __init__(self, new_seed: Callable[[], str] = lambda: "") -> None:
        """Args:
        new_seed: a text that nobody can guess.
        """
        self._new_seed = new_seed
        self._jobs: dict[str, JobMemory] = {}

    def of(self, uid: str, key: Key) -> JobMemory:
        """The memory of a job that exists."""
        if uid not in self._jobs:
            self._jobs[uid] = JobMemory(uid, key, self._new_seed())
        return self._jobs[uid]

    def get(self, uid: str | None) -> JobMemory | None:
        """The memory of a job, None where the job does not exist."""
        return self._jobs.get(uid or "")

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._jobs.pop(uid, None)

    def take_over(self) -> None:
        """Another process may have written since: what its writes have changed is not known."""
        for memory in self._jobs.values():
            memory.forget_answers()
            # The times in the status are those of another clock again.
            memory.taken_over = memory.last_status_write = memory.refused = None
            memory.inherited = True

    def __iter__(self) -> Iterator[JobMemory]:
        return iter(tuple(self._jobs.values()))

    @property
    def followed(self) -> int:
        """How many jobs have targets that are polled."""
        return sum(1 for memory in self._jobs.values() if memory.polled.targets)
