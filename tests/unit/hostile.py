"""A job whose program, neighbours, clocks and writers do what they like, in steps drawn from a seed.

Everything comes in as in the operator, as raw objects and raw answers. What was done is kept, for the message of
a test that fails.
"""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from world import START, World, running_world, spec_of, training

from ddpjob_core.api.base import format_time
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.names import pod_name
from ddpjob_core.api.status import STATUS_VERSION
from ddpjob_core.observations.observe import job_record, pod_record
from ddpjob_core.observations.observed import JobRecord, Rejection, RejectionKind, Terminated
from ddpjob_core.wire.fields import Fields
from ddpjob_core.wire.progress import PollTarget, ProgressReport, parse_progress, parse_slowest
from ddpjob_core.wire.rank_report import parse_rank_report, parse_wait

EARLIEST_CLOCK = datetime(1971, 1, 1, tzinfo=UTC)
NUMBERS: Final[tuple[object, ...]] = (
    *(0, 1, -1, 3, 40, 2**31 - 1, 2**31, 2**40, 2**53, 2**53 + 1, 2**63, -(2**63), 10**400),
    *(0.5, 6.0, 25.0, 700.0, 1e9, 1e12, 1e300, -1e300, float("nan"), float("inf"), -0.001),
)
TEXTS: Final[tuple[object, ...]] = (
    *("", "x", "nan", "\x1b[31mred\x1b[0m", "\x1b]52;c;cm0=\x07", "line\nbreak\r\u2028", "\u202eright\u2066", "\ud800"),
    *("x" * 9000, "\x00", "é🙂", "SIGKILL", "RuntimeError: Connection closed by peer", "Training", "Succeeded"),
)
TIMES: Final[tuple[object, ...]] = (
    *("2026-01-01T00:00:10Z", "2026-01-01T01:00:00Z", "2025-12-31T23:00:00+02:00", "1970-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "8999-12-31T00:00:00Z", "soon", "2026-02-30T00:00:00Z"),
)
OTHERS: Final[tuple[object, ...]] = (None, True, False, [], {}, [1], {"a": 1}, [[]] * 3)
ANYTHING: Final = (*NUMBERS, *TEXTS, *TIMES, *OTHERS)
REPORTED: Final = (
    *("epoch", "totalEpochs", "step", "totalSteps", "loss", "lossText", "samplesPerSecond", "etaSeconds"),
    *("lastStepTime", "lastCheckpointStep", "activity", "activitySeconds", "secondsSinceStep", "quietSeconds", "stack"),
    "processRestarts",
)
FAILED: Final = (
    "rank",
    "localRank",
    "exitCode",
    "signal",
    "oom",
    "time",
    "errorType",
    "message",
    "traceback",
    "permanent",
)
POD_STATES: Final = ("waiting", "running", "terminated")
SPEC_FIELDS: Final = (
    *("nodes", "procsPerNode", "launcher", "backend", "suspend", "restart", "progressDeadline", "startupDeadline"),
    *(
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "cleanPodPolicy",
        "gracePeriodSeconds",
        "template",
        "trainer",
    ),
    *("metrics", "rendezvous", "checkpoint", "slowRank", "fromTheFuture"),
)
GPUS: Final = {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": -3}}}

Raw = dict[str, Any]


@dataclass
class HostileWorld(World):
    """A world whose job is read from a raw object, with what has been done to it."""

    raw_spec: Raw = field(default_factory=dict)
    deleting: bool = False
    steps: list[str] = field(default_factory=list)
    _read: tuple[tuple[object, ...], JobRecord] | None = None

    def job(self) -> JobRecord:
        # Read once as long as nothing has changed, as the cache of a watch does.
        source = (self.status, self.raw_spec, self.deleting, self.generation)
        if self._read is None or any(new is not old for new, old in zip(source, self._read[0], strict=True)):
            self._read = (source, self._job())
        return self._read[1]

    def _job(self) -> JobRecord:
        metadata = {"namespace": "default", "name": "digits", "uid": "job-uid", "resourceVersion": "1"}
        deleted = {"deletionTimestamp": format_time(START)} if self.deleting else {}
        status = self.status.to_wire() if self.status is not None else None
        raw = {
            "metadata": {**metadata, **deleted, "generation": self.generation},
            "spec": self.raw_spec,
            "status": status,
        }
        record = job_record(raw)
        assert record is not None
        if record.spec is not None:
            self.spec = record.spec
        return record


def _beginnings() -> tuple[World, ...]:
    """Jobs as they are at different times of their lives."""
    fresh = World(spec=spec_of(startupDeadline={"seconds": 30, "action": "Restart"}))
    running = running_world(progressDeadline={"seconds": 20, "action": "Fail"})
    restarting = training()
    restarting.end("digits-a0-1", 1)
    restarting.settle()
    suspended = training()
    suspended.spec = suspended.spec.model_copy(update={"suspend": True})
    suspended.settle()
    stalled = training(progressDeadline={"seconds": 20, "action": "Restart"})
    for rank in (0, 1):
        stalled.report_rank(rank, 40, since_step=30.0)
    stalled.advance(1)
    stalled.settle()
    ended = running_world(ttlSecondsAfterFinished=100)
    ended.end("digits-a0-0", 0)
    ended.end("digits-a0-1", 0)
    ended.settle()
    return fresh, running, training(), restarting, suspended, stalled, ended


BEGINNINGS: Final = _beginnings()


def begin(rng: Random) -> HostileWorld:
    """One of the beginnings."""
    base = rng.choice(BEGINNINGS)
    values = {name: copy.copy(getattr(base, name)) for name in base.__dataclass_fields__}
    return HostileWorld(**values, raw_spec=json.loads(json.dumps(base.spec.to_wire())))


def disturb(world: HostileWorld, rng: Random) -> None:
    """Do one thing to the job, drawn at random."""
    step = rng.choice(STEPS)
    world.steps.append(step.__name__)
    step(world, rng)


def says(world: HostileWorld, rng: Random) -> None:
    """A rank answers on /progress."""
    raw = _some(rng, REPORTED)
    if rng.random() < 0.5:
        raw["slowest"] = _some(rng, ("rank", "factor", "what"))
        if rng.random() < 0.5:
            raw["slowest"] = {"rank": rng.randrange(4), "factor": rng.choice((1, 1.5, 1000)), "what": "Data"}
    if rng.random() < 0.2:
        raw["waiting"] = {"reason": rng.choice(("NameNotResolved", *TEXTS)), "message": rng.choice(ANYTHING)}
    world.steps.append(f"{raw!r:.300}")
    number = world.status.attempt if world.status is not None else 0
    rank = rng.randrange(3)
    target, fields = PollTarget(number, "10.0.0.1", 9401, rank, rank), Fields(raw)
    wait = parse_wait(fields, target, world.now)
    if wait is not None:
        world.waits[rank] = wait
        return
    world.ranks[rank] = parse_rank_report(fields, target, world.now)
    if rank == 0:
        world.progress = ProgressReport(number, *parse_progress(fields, world.now), parse_slowest(fields))


def ends(world: HostileWorld, rng: Random) -> None:
    """A pod ends with a termination message."""
    name = _pod(world, rng)
    if name is None or isinstance(world.pods[name].trainer, Terminated):
        return
    failures: object = [_some(rng, FAILED) for _ in range(rng.choice((0, 1, 2, 40)))]
    report = {
        "exitCode": 1,
        "failures": failures,
        "progress": _some(rng, REPORTED),
        **_some(rng, ("stopped", "processRestarts")),
    }
    message = rng.choice((json.dumps(report), json.dumps(report)[:-5], str(rng.choice(TEXTS)), "[" * 4000))
    world.steps.append(f"{message!r:.300}")
    world.end(name, rng.choice((0, 1, 7, 137, 143)), message, rng.choice(("", "OOMKilled", "StartError")))


def runs(world: HostileWorld, rng: Random) -> None:
    """A pod runs, or is given to a node."""
    name = _pod(world, rng)
    if name is not None and world.pods[name].phase == "Pending":
        (world.run if rng.random() < 0.8 else world.assign)(name)


def is_deleted(world: HostileWorld, rng: Random) -> None:
    """A pod is deleted, or removed at once."""
    name = _pod(world, rng)
    if name is not None:
        (world.delete_pod if rng.random() < 0.7 else world.remove)(name)


def comes(world: HostileWorld, rng: Random) -> None:
    """A pod is seen in a state that nobody should put it into."""
    number = rng.choice((0, 0, 1, 2, 9999, world.status.attempt if world.status is not None else 0))
    name = rng.choice((pod_name("digits", number, rng.randrange(3), 2), "digits-tool", "digits-a99999999-0"))
    state = rng.choice(POD_STATES)
    container = {
        "name": rng.choice(("trainer", "sidecar")),
        "state": {state: _some(rng, ("exitCode", "signal", "reason", "message", "startedAt", "finishedAt"))},
    }
    conditions = [
        {
            "type": kind,
            "status": rng.choice(("True", "False")),
            "reason": rng.choice(TEXTS),
            "message": rng.choice(TEXTS),
            "lastTransitionTime": rng.choice(TIMES),
        }
        for kind in ("PodScheduled", "Ready", "ContainersReady", "DisruptionTarget")
        if rng.random() < 0.5
    ]
    deleted = {"deletionTimestamp": rng.choice(TIMES), "deletionGracePeriodSeconds": rng.choice(NUMBERS)}
    raw = {
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "ownerReferences": [{"uid": "job-uid", "controller": True}],
            "creationTimestamp": rng.choice(TIMES),
            **(deleted if rng.random() < 0.4 else {}),
        },
        "spec": {"nodeName": rng.choice(("", "node-1", None))},
        "status": {
            "phase": rng.choice(("Pending", "Running", "Failed", "Succeeded", "Unknown", "")),
            "containerStatuses": [container],
            "conditions": conditions,
            "podIP": "10.0.0.1",
            "reason": rng.choice(("", "Evicted", *TEXTS)),
            "message": rng.choice(TEXTS),
        },
    }
    world.steps.append(f"{raw!r:.600}")
    record = pod_record(raw)
    assert record is not None
    world.show(record)


def is_refused(world: HostileWorld, rng: Random) -> None:
    """The API server refuses an object, or no longer does; or a name is taken."""
    kind, text = rng.choice(tuple(RejectionKind)), str(rng.choice(TEXTS))
    name = ObjectName(rng.choice(("Pod", "Service", "ConfigMap", "PersistentVolumeClaim")), "digits-a0-0")
    world.rejections = () if rng.random() < 0.3 else (*world.rejections, Rejection(kind, name, text))
    world.foreign = {name: text} if rng.random() < 0.3 else {}


def time_passes(world: HostileWorld, rng: Random) -> None:
    """Time passes, or another process goes on with another clock; the others' clocks are set."""
    if rng.random() < 0.5:
        world.advance(rng.choice((0.3, 1.0, 6.0, 40.0, 700.0, 3600.0, 1e9)))
    else:
        ahead = rng.choice((3600.0, -3600.0, -1.0, 1e9, -1e9))
        # No machine's clock shows a time before 1970, and no status can name one.
        world.take_over(ahead if world.now + timedelta(seconds=ahead) > EARLIEST_CLOCK else -1.0)
    world.others_ahead = timedelta(seconds=rng.choice((0, 0, 3600, -3600, 10**9)))


def dies(world: HostileWorld, rng: Random) -> None:
    """The operator's process dies, and another one goes on."""
    world.crash()
    if rng.random() < 0.2:
        world.status = None


def status_is_edited(world: HostileWorld, rng: Random) -> None:
    """A user with the right to do so writes into the status."""
    if world.status is None:
        return
    wire = json.loads(json.dumps(world.status.to_wire()))
    for _ in range(rng.randint(1, 3)):
        _replace_somewhere(wire, rng)
    world.steps.append(f"{wire!r:.2000}")
    record = job_record({"metadata": {"namespace": "n", "name": "j", "uid": "u"}, "spec": {}, "status": wire})
    assert record is not None
    world.status = record.status


def spec_is_changed(world: HostileWorld, rng: Random) -> None:
    """The spec of a newer version, an older one, or one that nobody has checked."""
    name = rng.choice(SPEC_FIELDS)
    sensible = {
        "nodes": rng.randint(1, 3),
        "suspend": rng.random() < 0.5,
        "template": {"spec": {"containers": [GPUS]}} if rng.random() < 0.5 else {},
        "activeDeadlineSeconds": rng.choice((1, 60, 315360000)),
        "ttlSecondsAfterFinished": rng.choice((0, 60, 315360000)),
    }
    value = sensible[name] if name in sensible and rng.random() < 0.7 else rng.choice(ANYTHING)
    world.raw_spec = {**world.raw_spec, name: value}
    if name == "template":
        world.raw_spec["procsPerNode"] = "auto"
    world.generation = rng.choice((world.generation + 1, 2**62))
    world.steps.append(f"{name}: {value!r:.100}")


def job_is_deleted(world: HostileWorld, _: Random) -> None:
    """The job is being deleted."""
    world.deleting = not world.deleting


def status_is_refused(world: HostileWorld, rng: Random) -> None:
    """The API server refuses a part of the status, or no longer does."""
    world.status_refused = rng.choice(("", "the API server refuses status.progress.loss"))


STEPS: Final[Sequence[Callable[[HostileWorld, Random], None]]] = (
    *(says, says, says, ends, ends, runs, runs, is_deleted, comes, comes, is_refused, time_passes),
    *(dies, status_is_edited, status_is_edited, spec_is_changed, status_is_refused),
    job_is_deleted,
)


def _some(rng: Random, names: Sequence[str]) -> Raw:
    return {name: rng.choice(NUMBERS if rng.random() < 0.6 else ANYTHING) for name in names if rng.random() < 0.5}


def _pod(world: World, rng: Random) -> str | None:
    return rng.choice(sorted(world.pods)) if world.pods else None


def _replace_somewhere(value: Any, rng: Random) -> None:
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.7:
        _replace_somewhere(value[key], rng)
    else:
        value[key] = copy.deepcopy(rng.choice(ANYTHING))


def calm(world: HostileWorld, *, suspend: bool) -> None:
    """From now on everything is as it should be: the spec, the clocks, the neighbours, the API server, the version."""
    if world.status is not None:
        world.status = world.status.model_copy(update={"version": STATUS_VERSION})
    good = json.loads(json.dumps(BEGINNINGS[1].spec.to_wire()))
    world.raw_spec = {**good, "nodes": world.spec.nodes, "suspend": suspend}
    world.now = max(world.now, datetime(2030, 1, 1, tzinfo=UTC))
    world.rejections, world.foreign, world.others_ahead, world.deleting = (), {}, timedelta(), False
    if world.status is not None:
        # The status of a newer version is left alone.
        world.status = world.status.model_copy(update={"version": STATUS_VERSION})


def at_rest(world: HostileWorld) -> bool:
    """Whether the job is suspended with no live pod, or has finished."""
    status = world.status
    return status is not None and (status.finished or (world.spec.suspend and status.phase == "Suspended"))


def forget_ended(world: HostileWorld) -> None:
    """The kubelet ends what was asked to stop, and the rest when its time has come."""
    world.kubelet_removes_deleted_pods()
    for name, pod in list(world.pods.items()):
        if pod.phase in ("Unknown", ""):
            world.pods[name] = replace(pod, phase="Running")
