"""A job that waits for its last pod waits: nothing of it has failed, and its deadlines count."""

import json
from dataclasses import replace

import pytest
from world import EXCEEDED_QUOTA, World, spec_of

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.observations.observed import Waiting

NO_ROOM = Waiting("Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
LATE = "RendezvousTimeoutError: not all nodes joined in time. Check the job's pods"
GAVE_UP = {
    "torchrun": LATE,
    "static": "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    "node 0 missing": "node 0 did not come up within 600 s: digits-a0-0.digits does not exist yet. Check its pod",
    "mpirun": "node 0 did not start mpirun in time: check the log of its pod",
    "python": "DistNetworkError: The client socket has timed out after 600000ms while trying to connect",
}


def second_waits(world: World, obstacle: Waiting | None = NO_ROOM, *, scheduled: bool = False) -> None:
    """The first pod runs, the second does not come up; both for 600 s."""
    assert world.status is not None
    first, second = (f"digits-a{world.status.attempt}-{ordinal}" for ordinal in (0, 1))
    world.run(first)
    world.pods[second] = replace(world.pods[second], obstacle=obstacle, scheduled=scheduled)
    world.advance(600)
    world.settle()


def started(**fields: object) -> World:
    world = World(spec=spec_of(**fields))
    world.settle()
    return world


def first_ends(world: World, message: str) -> None:
    """The node that is up ends, and the pods of the next attempt are created a minute later."""
    assert world.status is not None
    report = {"exitCode": 1, "failures": [{"exitCode": 1, "time": 9.0, "message": message}]}
    world.end(f"digits-a{world.status.attempt}-0", 1, json.dumps(report))
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(60)
    world.settle()


def told(world: World, kind: ConditionType) -> tuple[str, str]:
    assert world.status is not None
    condition = world.status.condition(kind)
    assert condition is not None
    return condition.reason, condition.message


@pytest.mark.parametrize("message", GAVE_UP.values(), ids=GAVE_UP)
def test_a_node_that_gives_up_waiting_for_a_pod_without_a_node_uses_up_no_restart(message: str) -> None:
    world = started(restart={"maxRestarts": 0})
    for _ in range(5):
        second_waits(world)
        assert "Insufficient nvidia.com/gpu" in told(world, ConditionType.PODS_SCHEDULED)[1]
        first_ends(world, message)
        assert world.status is not None
        assert world.status.failure is not None
        assert (world.status.failure.reason, world.status.failure.failure_class) == ("WaitingForPods", "Waiting")
        assert "have given up waiting for 1 of 2 pods: digits-a" in world.status.failure.message
        assert "Insufficient nvidia.com/gpu" in world.status.failure.message
    assert (world.status.attempt, world.status.restarts.counted, world.status.restarts.ignored) == (5, 0, 5)
    world.run_all()
    world.advance(6)
    world.settle()
    assert world.status.phase is Phase.RUNNING


@pytest.mark.parametrize("scheduled", [False, True], ids=["not yet scheduled", "its image is pulled"])
def test_a_pod_that_takes_long_to_start_is_waited_for_as_well(*, scheduled: bool) -> None:
    world = started()
    second_waits(world, None, scheduled=scheduled)
    first_ends(world, LATE)
    assert world.status is not None
    assert (world.status.restarts.counted, world.status.restarts.ignored) == (0, 1)


@pytest.mark.parametrize(
    ("message", "second"),
    [
        ("ValueError: bad", "no room"),
        ("exit code 1", "no room"),
        (LATE, "no image"),
        (LATE, "up"),
        (LATE, "ended"),
    ],
)
def test_any_other_end_is_counted(message: str, second: str) -> None:
    world = started()
    no_image = second == "no image"
    second_waits(world, Waiting("ImagePullBackOff", "no such image") if no_image else NO_ROOM, scheduled=no_image)
    if second in ("up", "ended"):
        world.run("digits-a0-1")
        world.settle()
    if second == "ended":
        world.end("digits-a0-1", 1)
    first_ends(world, message)
    world.advance(60)
    world.settle()
    assert world.status is not None
    assert (world.status.restarts.counted, world.status.restarts.ignored) == (1, 0)


@pytest.mark.parametrize(
    "message",
    [
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "ReadTimeout: The request to the model's server timed out",
        "DistNetworkError: The server socket has failed to listen on any local network address: EADDRINUSE",
    ],
)
def test_a_program_that_fails_at_once_is_charged_for_it_although_the_other_node_is_still_starting(message: str) -> None:
    world = started(restart={"maxRestarts": 3})
    for _ in range(4):
        second_waits(world, None, scheduled=True)
        first_ends(world, message)
    assert world.status is not None
    assert (world.status.phase, world.status.restarts.counted) == (Phase.FAILED, 3)


def test_a_rule_of_the_job_may_count_it() -> None:
    world = started(restart={"rules": [{"action": "Restart", "reasons": ["WaitingForPods"]}]})
    second_waits(world)
    first_ends(world, LATE)
    assert world.status is not None
    assert world.status.restarts.counted == 1


def test_the_startup_deadline_counts_on_over_attempts_that_only_waited() -> None:
    world = started(startupDeadline={"seconds": 1500, "action": "Fail"})
    for _ in range(2):
        second_waits(world)
        first_ends(world, LATE)
    assert world.status is not None
    assert not world.status.finished
    second_waits(world)
    reason, message = told(world, ConditionType.FAILED)
    assert reason == "StartupDeadlineExceeded"
    assert "Insufficient nvidia.com/gpu" in message


def test_the_startup_deadline_counts_from_the_start_after_any_other_restart() -> None:
    world = started(startupDeadline={"seconds": 1500, "action": "Fail"})
    second_waits(world)
    world.run_all()
    first_ends(world, "ValueError: bad")
    assert world.status is not None
    assert world.status.attempt_start_time == world.now


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("activeDeadlineSeconds", 600, "DeadlineExceeded"),
        ("startupDeadline", {"seconds": 600, "action": "Fail"}, "StartupDeadlineExceeded"),
    ],
)
@pytest.mark.parametrize("refused", [{1}, {0, 1}], ids=["the last pod", "all pods"])
def test_deadlines_count_while_a_quota_has_no_room_for_the_last_pod_but_not_before_the_first(
    field: str, value: object, reason: str, refused: set[int]
) -> None:
    world = World(spec=spec_of(**{field: value}), quota_refuses=frozenset(refused))
    world.reconcile()
    world.reconcile()
    world.run_all()
    world.advance(599)
    world.reconcile()
    assert world.status is not None
    assert not world.status.finished
    assert EXCEEDED_QUOTA in told(world, ConditionType.PODS_SCHEDULED)[1]
    assert told(world, ConditionType.RENDEZVOUS_READY)[1].endswith(": see PodsScheduled")
    world.advance(1)
    world.reconcile()
    if refused == {1}:
        assert told(world, ConditionType.FAILED)[0] == reason
    else:
        assert not world.status.finished


def test_a_node_that_gives_up_waiting_for_a_pod_that_a_quota_refuses_uses_up_no_restart() -> None:
    world = World(quota_refuses=frozenset({1}))
    world.reconcile()
    world.reconcile()
    world.run_all()
    world.end("digits-a0-0", 1, json.dumps({"exitCode": 1, "failures": [{"message": LATE}]}))
    world.reconcile()
    assert world.status is not None
    assert (world.status.restarts.counted, world.status.restarts.ignored) == (0, 1)
    assert world.status.failure is not None
    assert EXCEEDED_QUOTA in world.status.failure.message
