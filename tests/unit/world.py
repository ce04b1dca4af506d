"""A world in memory for `decide`: it keeps what the API server would keep and does what the kubelet would do.

It stands in for nothing that a real API server decides; it only lets a property test try thousands of orders of events.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ddpjob_core.api import DDPJobSpec, DDPJobStatus
from ddpjob_core.api.constants import ANNOTATION_MEMBERSHIP, ANNOTATION_SPEC_HASH, LAUNCHER_VOLUME, SSH_KEY_VOLUME
from ddpjob_core.api.kubernetes import ObjectName, object_name
from ddpjob_core.api.membership import membership_text
from ddpjob_core.api.network_policy import Isolation, content_of
from ddpjob_core.api.status import Progress
from ddpjob_core.children.actions import Action, AnnounceMembership, Create, CreatePod, DeleteJob, DeletePod
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import PodBuilder, build_pod
from ddpjob_core.decide import Plan, decide
from ddpjob_core.observations.attempt import current_attempt
from ddpjob_core.observations.observe import terminated
from ddpjob_core.observations.observed import (
    JobRecord,
    NetworkPolicyRecord,
    Observed,
    PodRecord,
    Rejection,
    RejectionKind,
    Running,
    ServiceRecord,
    Terminated,
)
from ddpjob_core.observations.sightings import sighted
from ddpjob_core.status.events import Event
from ddpjob_core.wire.progress import PollTarget, ProgressReport
from ddpjob_core.wire.rank_report import RankReport, RendezvousWait

DEADLINE = {"seconds": 20, "action": "Warn"}
EXCEEDED_QUOTA = "exceeded quota: gpus"
START = datetime(2026, 1, 1, tzinfo=UTC)


def spec_of(**fields: object) -> DDPJobSpec:
    return DDPJobSpec.model_validate(
        {"nodes": 2, "procsPerNode": 1, "trainer": {"image": "i", "script": "train.py"}, **fields}
    )


def environment_of(job: JobRecord, spec: DDPJobSpec, attempt: int = 0, ordinal: int = 0) -> dict[str, str]:
    """What a pod's trainer finds in its environment, as far as the job alone tells."""
    trainer = build_pod(job, spec, attempt, ordinal)["spec"]["containers"][0]
    config = build_launcher(job, spec)
    environment: dict[str, str] = {}
    for source in trainer.get("envFrom") or []:
        if source.get("configMapRef") == {"name": config["metadata"]["name"]}:
            environment |= config["data"]
    return environment | {each["name"]: each["value"] for each in trainer["env"] if "value" in each}


def words(actions: Iterable[Action]) -> list[str]:
    """What each action does, as `Create Pod` or `DeletePod`."""
    return [_word(action) for action in actions]


def _word(action: Action) -> str:
    if isinstance(action, CreatePod):
        return "Create Pod"
    return f"Create {action.manifest['kind']}" if isinstance(action, Create) else type(action).__name__


@dataclass
class World:
    spec: DDPJobSpec = field(default_factory=spec_of)
    status: DDPJobStatus | None = None
    now: datetime = START
    pods: dict[str, PodRecord] = field(default_factory=dict)
    service: ServiceRecord | None = None
    isolation: Isolation | None = None
    network_policy: NetworkPolicyRecord | None = None
    last_write: datetime | None = None
    taken_over: datetime | None = None
    inherited: bool = False
    seed: str = "1"
    """What the process makes names from that nobody else knows."""
    others_ahead: timedelta = timedelta()
    """How far the clocks of the API server, the scheduler and the nodes are ahead of the operator's."""
    foreign: dict[ObjectName, str] = field(default_factory=dict)
    rejections: tuple[Rejection, ...] = ()
    quota_refuses: frozenset[int] = frozenset()
    """Ordinals of the pods that cannot be created."""
    no_spares: bool = False
    """Whether a quota has no room for spare nodes."""
    progress: ProgressReport | None = None
    ranks: dict[int, RankReport] = field(default_factory=dict)
    polled: tuple[PollTarget, ...] = ()
    """Ranks that are asked, each within two seconds."""
    waits: dict[int, RendezvousWait] = field(default_factory=dict)
    known: dict[ObjectName, tuple[int, datetime]] = field(default_factory=dict)
    """The attempt for which an object that no watch shows was created, and when."""
    unwatched: set[ObjectName] = field(default_factory=set)
    """Objects that no watch shows and that exist."""
    port_rivals: dict[str, dict[str, range]] = field(default_factory=dict)
    vanished: dict[str, PodRecord] = field(default_factory=dict)
    most_at_once: int | None = None
    """Pods that one reconcile deletes."""
    generation: int = 1
    status_refused: str = ""
    found_claim: str | None = None
    job_deleted: bool = False
    status_writes: list[DDPJobStatus] = field(default_factory=list)
    creations: list[str] = field(default_factory=list)
    requests: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def job(self) -> JobRecord:
        return JobRecord(
            namespace="default",
            name="digits",
            uid="job-uid",
            resource_version="1",
            generation=self.generation,
            deleting=False,
            spec=self.spec,
            # What was written comes back through JSON.
            status=DDPJobStatus.model_validate(self.status.to_wire()) if self.status else None,
        )

    def attempt(self) -> int:
        return current_attempt(self.job(), tuple(self.pods.values()))

    def observe(self) -> Observed:
        return Observed(
            job=self.job(),
            now=self.now,
            pods=tuple(self.pods.values()),
            vanished=tuple(self.vanished.values()),
            service=self.service,
            network_policy=self.network_policy,
            foreign=self.foreign,
            rejections=self.rejections,
            progress=self.progress,
            ranks=tuple(self.ranks.values()),
            unanswered=frozenset(target for target in self.polled if not self.has_answered(target)),
            waits=tuple(self.waits.values()),
            known={name: at for name, (attempt, at) in self.known.items() if attempt == self.attempt()},
            port_rivals=self.port_rivals,
            last_status_write=self.last_write,
            status_refused=self.status_refused,
            taken_over=self.taken_over,
            inherited=self.inherited,
            seed=self.seed,
            found_claim=self.found_claim,
        )

    def has_answered(self, target: PollTarget) -> bool:
        """Whether a rank has answered its last poll."""
        report = self.ranks.get(target.rank)
        last = self.now - timedelta(seconds=2)
        return report is not None and report.attempt == target.attempt and report.answered >= last

    def reconcile(self, *, crash_after: int | None = None) -> Plan:
        """One reconcile; `crash_after` ends it after so many writes, the memory of the process being lost."""
        self.taken_over = self.taken_over or self.now
        plan = decide(self.observe(), isolation=self.isolation)
        self.polled = plan.poll
        writes = 0
        if plan.status is not None:
            if crash_after == writes:
                self.crash()
                return plan
            self.status = plan.status
            self.status_writes.append(plan.status)
            self.last_write = self.now
            self.inherited = False
            writes += 1
        for action in self._at_once(plan.actions):
            if crash_after == writes:
                self.crash()
                return plan
            self.apply(action)
            writes += 1
        if crash_after is not None:
            self.crash()
        else:
            self.events.extend(plan.events)
        return plan

    def _at_once(self, actions: Iterable[Action]) -> list[Action]:
        """What one reconcile carries out: so many deletions, and nothing is created before the last of them."""
        pods = [action for action in actions if isinstance(action, AnnounceMembership | DeletePod)]
        if self.most_at_once is None or len(pods) <= self.most_at_once:
            return list(actions)
        later = (*pods[self.most_at_once :], *(each for each in actions if isinstance(each, CreatePod | DeleteJob)))
        return [action for action in actions if action not in later]

    def settle(self, *, limit: int = 50) -> None:
        """Reconcile until nothing is left to do at this moment."""
        for _ in range(limit):
            plan = self.reconcile()
            if plan.status is None and not plan.actions:
                return
        raise AssertionError(f"not settled after {limit} reconciles: {plan}")

    def restart(self) -> None:
        """The job lives through its first attempt, whose node 0 fails, and begins the second."""
        self.settle()
        self.run_all()
        self.end("digits-a0-0", 1)
        self.settle()
        self.kubelet_removes_deleted_pods()
        self.advance(60)
        self.settle()
        assert self.status is not None
        assert self.status.attempt == 1

    def crash(self) -> None:
        self.known = {}
        self.vanished = {}
        self.ranks = {}
        self.polled = ()
        self.waits = {}
        self.last_write = None
        self.taken_over = None
        self.inherited = True
        self.seed = f"{int(self.seed) + 1}"
        self.progress = None
        # What the next process sees, it sees for the first time.
        self.pods = {name: sighted(None, pod, self.now) for name, pod in self.pods.items()}

    def take_over(self, seconds: float) -> None:
        """Another process goes on, whose clock is ahead of this one's by so many seconds, or behind it."""
        self.now += timedelta(seconds=seconds)
        self.crash()

    def apply(self, action: Action) -> None:
        self.requests.append(action)
        kind = action.manifest["kind"] if isinstance(action, Create) else None
        if kind == "Service":
            self.service = ServiceRecord("default", "digits", "service-uid", "1", "job-uid", "digits")
        elif kind == "NetworkPolicy":
            content = content_of(action.manifest["spec"])
            self.network_policy = NetworkPolicyRecord("default", "digits", "np-uid", "1", "job-uid", "digits", content)
        elif isinstance(action, Create):
            self.known[object_name(action.manifest)] = (self.attempt(), self.now)
            self.unwatched.add(object_name(action.manifest))
        elif isinstance(action, CreatePod) and self._is_refused(action):
            refused = Rejection(RejectionKind.FORBIDDEN, ObjectName("Pod", action.name), EXCEEDED_QUOTA)
            self.rejections = (*(each for each in self.rejections if each.object != refused.object), refused)
        elif isinstance(action, CreatePod):
            manifest = self.manifest_of(action)
            name = manifest["metadata"]["name"]
            volumes = {each["name"]: each for each in manifest["spec"]["volumes"]}
            launcher = volumes[LAUNCHER_VOLUME]["configMap"]["name"] if LAUNCHER_VOLUME in volumes else None
            key = volumes[SSH_KEY_VOLUME]["secret"]["secretName"] if SSH_KEY_VOLUME in volumes else None
            # After a refusal, what was not refused had been created; here a test may have put it in.
            there = launcher is None or self.rejections or ObjectName("ConfigMap", launcher) in self.unwatched
            assert there, f"{name} has no launcher"
            there = key is None or self.rejections or ObjectName("Secret", key) in self.unwatched
            assert there, f"{name} has no key"
            assert name == action.name
            assert name not in self.pods, f"{name} was created while it existed"
            complete = self.status is not None and self.status.pods_created
            members = 0 if self.status is None or self.status.membership is None else self.status.membership.nodes
            joins = self.spec.elastic is not None and (action.ordinal >= members or action.spare > 0)
            if action.membership is not None and action.membership.rejoining is not None:
                # In the place of a lost one.
                joins = joins or not action.membership.rejoining.created
            assert not complete or joins, f"{name} was created although all pods of its attempt had been"
            self.creations.append(name)
            self.pods[name] = PodRecord(
                "default",
                name,
                f"uid-{name}",
                "1",
                "job-uid",
                "digits",
                None,
                None,
                "Pending",
                created=self.now,
                spec_hash=manifest["metadata"]["annotations"][ANNOTATION_SPEC_HASH],
                membership=manifest["metadata"]["annotations"].get(ANNOTATION_MEMBERSHIP),
                ssh_key=key,
            )
        elif isinstance(action, AnnounceMembership):
            self.pods[action.name] = replace(self.pods[action.name], membership=membership_text(action.membership))
        elif isinstance(action, DeletePod):
            self.delete_pod(action.name, action.grace_seconds)
        elif isinstance(action, DeleteJob):
            self.job_deleted = True

    def _is_refused(self, action: CreatePod) -> bool:
        return self.no_spares if action.spare else action.ordinal in self.quota_refuses

    def manifest_of(self, action: CreatePod) -> dict[str, Any]:
        """The pod that an action creates."""
        rest = (action.lost_nodes, action.membership)
        builder = PodBuilder(self.job(), self.spec, action.attempt, *rest, shared=action.shared)
        return builder.build_spare(action.spare) if action.spare else builder.build(action.ordinal)

    def report_rank(self, rank: int, step: int | None, *, since_step: float = 0.5, **fields: Any) -> None:
        """A rank answers on /progress at this moment."""
        attempt = self.status.attempt if self.status is not None else 0
        self.ranks[rank] = RankReport(
            attempt, rank, rank, self.now, step, seconds_since_step=None if step is None else since_step, **fields
        )

    def delete_pod(self, name: str, grace: int | None = None) -> None:
        pod = self.pods.get(name)
        if pod is None:
            return
        if isinstance(pod.trainer, Terminated) or pod.phase in ("Succeeded", "Failed"):
            self.remove(name)
        elif pod.deletion_time is None:
            seconds = 30 if grace is None else grace
            due = self.others_now() + timedelta(seconds=seconds)
            self.show(replace(pod, deletion_time=due, deletion_grace=seconds))

    def others_now(self) -> datetime:
        return self.now + self.others_ahead

    def show(self, pod: PodRecord) -> None:
        """The watch shows the operator a pod in this state."""
        self.pods[pod.name] = sighted(self.pods.get(pod.name), pod, self.now)

    def run(self, name: str) -> None:
        self.show(
            replace(
                self.pods[name],
                phase="Running",
                scheduled=True,
                ready=True,
                node_name="node-1",
                pod_ip="10.0.0.1",
                trainer=Running(self.others_now()),
                unadmitted_since=None,
            )
        )

    def assign(self, name: str, node: str = "node-1") -> None:
        """The scheduler gives a pod to a node that has not seen it yet."""
        pod = replace(self.pods[name], scheduled=True, node_name=node, unadmitted_since=self.others_now())
        self.show(pod)

    def end(self, name: str, code: int, message: str = "", reason: str = "") -> None:
        why = reason or ("Completed" if code == 0 else "Error")
        known = self.pods[name].membership
        if known and not message:
            message = json.dumps({"exitCode": code, "generation": json.loads(known)["generation"]})
        self.show(
            replace(
                self.pods[name],
                phase="Succeeded" if code == 0 else "Failed",
                scheduled=True,
                unadmitted_since=None,
                trainer=terminated(code, message, reason=why, finished_at=self.others_now()),
            )
        )

    def kubelet_removes_deleted_pods(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.deletion_time is not None:
                self.remove(name)

    def remove(self, name: str) -> None:
        pod = self.pods.pop(name)
        if isinstance(pod.trainer, Terminated) or pod.disruption is not None:
            self.vanished[name] = pod

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def live(self) -> list[str]:
        return [
            name for name, pod in self.pods.items() if pod.deletion_time is None and pod.phase in ("Pending", "Running")
        ]

    def run_all(self) -> None:
        for name in self.live():
            self.run(name)


def running_world(**fields: object) -> World:
    """A job whose pods have been created and run."""
    world = World(spec=spec_of(**fields))
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    return world


def training(**fields: Any) -> World:
    """Two ranks that have just made step 40."""
    world = running_world(**{"progressDeadline": DEADLINE, **fields})
    world.progress = ProgressReport(0, Progress(step=40), "0.5")
    for rank in (0, 1):
        world.report_rank(rank, 40)
    world.advance(6)
    world.settle()
    return world
