"""How the pods of an attempt are created: all of them or none."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from world import World, running_world, spec_of, words

from ddpjob_core.api import ConditionType
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.children.actions import CreatePod, DeleteStray
from ddpjob_core.children.launcher_config import launcher_config_name
from ddpjob_core.children.shared import shared_names
from ddpjob_core.observations.node_lost import SILENCE_OF_LOST
from ddpjob_core.observations.observed import Rejection, RejectionKind


def test_a_new_job_gets_its_service_its_launcher_and_one_pod_per_node_before_any_status_is_written() -> None:
    world = World(spec=spec_of(nodes=3))
    plan = world.reconcile()
    assert plan.status is None
    assert words(plan.actions) == ["Create Service", "Create ConfigMap", *["Create Pod"] * 3]
    assert world.creations == ["digits-a0-0", "digits-a0-1", "digits-a0-2"]


def test_under_mpirun_the_key_is_created_once_per_attempt_before_any_pod() -> None:
    world = World(spec=spec_of(nodes=2, launcher="mpirun"))
    plan = world.reconcile()
    kinds = words(plan.actions)
    assert kinds == ["Create Service", "Create ConfigMap", "Create Secret", "Create Pod", "Create Pod"]
    world.settle()
    assert words(world.requests).count("Create Secret") == 1


@pytest.mark.parametrize("writes", range(6))
def test_all_pods_of_an_attempt_have_one_key_whichever_operator_creates_them(writes: int) -> None:
    world = World(spec=spec_of(nodes=3, launcher="mpirun"))
    world.reconcile(crash_after=writes)
    world.settle()
    assert len(world.pods) == 3
    assert len({pod.ssh_key for pod in world.pods.values()}) == 1


def test_nobody_can_work_out_a_name_before_the_object_exists() -> None:
    world = World(spec=spec_of(launcher="mpirun"))
    world.settle()
    plain = shared_names(world.job(), world.spec)
    first = shared_names(world.job(), world.spec, world.seed)
    assert {first.launcher, first.ssh_key} == {each.name for each in world.unwatched}
    other = shared_names(world.job(), spec_of(launcher="mpirun", procsPerNode=3), world.seed)
    made = {str(name).rpartition("-")[2] for name in (first.launcher, first.ssh_key, other.launcher)}
    assert len(made) == 3, "the end of one name tells that of another"
    assert not {plain.launcher, plain.ssh_key} & {each.name for each in world.unwatched}


def test_a_missing_pod_is_made_before_all_were_made_and_is_a_failure_after() -> None:
    world = World(spec=spec_of(nodes=3))
    world.reconcile(crash_after=3)
    assert world.creations == ["digits-a0-0"]
    world.settle()
    assert world.creations == ["digits-a0-0", "digits-a0-1", "digits-a0-2"]
    del world.pods["digits-a0-1"]
    world.reconcile()
    assert world.status is not None
    assert world.status.restarts.last_reason == "PodMissing"


def test_a_pod_that_lost_its_label_is_deleted_by_name() -> None:
    world = running_world()
    del world.pods["digits-a0-1"]
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(1)
    world.settle()
    assert DeleteStray("digits-a0-1", 1) in world.requests
    assert words(world.requests[-4:]) == [
        "DeleteStray",
        "Create ConfigMap",
        "Create Pod",
        "Create Pod",
    ]


def test_pods_of_older_attempts_are_kept_for_three_attempts_only() -> None:
    world = running_world(restart={"maxRestarts": 10}, nodes=3)
    for attempt in range(6):
        for ordinal in range(3):
            world.end(f"digits-a{attempt}-{ordinal}", 1 if ordinal == 1 else 0)
        world.settle()
        world.advance(120)
        world.settle()
        world.run_all()
    assert sorted(world.pods) == [
        *(f"digits-a{attempt}-{ordinal}" for attempt in (3, 4, 5) for ordinal in (0, 1)),
        *(f"digits-a6-{ordinal}" for ordinal in range(3)),
    ]


def test_a_used_up_quota_is_reported_and_retried_with_one_pod_only() -> None:
    world = World(spec=spec_of(nodes=5))
    world.rejections = (Rejection(RejectionKind.FORBIDDEN, ObjectName("Pod", "digits-a0-0"), "exceeded quota"),)
    plan = world.reconcile()
    assert plan.status is not None
    told = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert (told.status, told.reason) == ("False", "Forbidden")
    assert "exceeded quota" in told.message
    assert words(plan.actions).count("Create Pod") == 1
    assert plan.requeue_after == timedelta(seconds=10)


def test_pods_that_are_refused_alike_are_named_together_with_the_first_message() -> None:
    names = [ObjectName("Pod", f"digits-a0-{ordinal}") for ordinal in range(2)]
    refused = [Rejection(RejectionKind.FORBIDDEN, name, f'pods "{name.name}" is forbidden: quota') for name in names]
    plan = World(rejections=tuple(refused)).reconcile()
    assert plan.status is not None
    shown = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert shown is not None
    assert shown.message == (
        'the API server refuses to create pod digits-a0-0, pod digits-a0-1 (2): pods "digits-a0-0" is forbidden: quota'
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (RejectionKind.UNAVAILABLE, "the API server fails to create pod digits-a0-0: failed calling webhook"),
        (RejectionKind.FORBIDDEN, "the API server refuses to create pod digits-a0-0: failed calling webhook"),
        (RejectionKind.BEING_DELETED, "waiting to create pod digits-a0-0: failed calling webhook"),
    ],
)
def test_whatever_keeps_a_pod_from_being_created_for_now_is_reported_and_waited_for_alike(
    kind: RejectionKind, words: str
) -> None:
    world = World(rejections=(Rejection(kind, ObjectName("Pod", "digits-a0-0"), "failed calling webhook"),))
    plan = world.reconcile()
    assert plan.status is not None
    told = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert (told.status, told.reason, told.message) == ("False", kind.value, words)
    assert not plan.status.finished
    assert plan.requeue_after == timedelta(seconds=10)


def test_no_pod_is_made_while_the_launchers_name_is_taken() -> None:
    world = World()
    world.rejections = (
        Rejection(
            RejectionKind.NAME_TAKEN,
            ObjectName("ConfigMap", launcher_config_name(world.observe().job, world.spec, world.seed)),
            "it has another owner",
        ),
    )
    plan = world.reconcile()
    assert words(plan.actions) == ["Create ConfigMap"]


def test_all_that_is_refused_is_named_in_whatever_order_the_answers_came() -> None:
    names = (ObjectName("Service", "d"), ObjectName("ConfigMap", "d"))
    refused = [Rejection(RejectionKind.NAME_TAKEN, name, "it is another's") for name in names]
    messages = set()
    for rejections in (refused, refused[::-1]):
        world = World(rejections=tuple(rejections))
        plan = world.reconcile()
        assert plan.status is not None
        told = plan.status.condition(ConditionType.PODS_SCHEDULED)
        assert told is not None
        messages.add(told.message)
    assert messages == {"waiting to create configmap d, service d (2): it is another's"}


def test_a_name_that_is_taken_is_waited_for_and_named() -> None:
    world = World(foreign={ObjectName("Pod", "digits-a0-1"): "DDPJob digits (uid older)"})
    plan = world.reconcile()
    assert plan.actions == ()
    assert plan.status is not None
    told = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert told.reason == "NameTaken"
    assert "pod digits-a0-1" in told.message
    world.foreign = {}
    world.settle()
    assert len(world.pods) == 2


def test_the_next_attempt_prefers_other_nodes_and_does_not_wait_long_on_one_that_is_known_to_be_lost() -> None:
    world = World()
    world.settle()
    world.run_all()
    world.settle()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], node_name="node-2", node_lost=True)
    world.settle()
    world.remove("digits-a0-0")
    world.advance(5)
    world.settle()
    created = [world.manifest_of(action) for action in world.requests if isinstance(action, CreatePod)][-2:]
    assert [manifest["metadata"]["name"] for manifest in created] == ["digits-a1-0", "digits-a1-1"]
    for manifest in created:
        (wish,) = manifest["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert wish["preference"]["matchFields"] == [
            {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}
        ]
    world.run("digits-a1-0")
    world.assign("digits-a1-1", "node-2")
    plan = world.reconcile()
    assert plan.requeue_after is not None
    assert plan.requeue_after <= SILENCE_OF_LOST
    world.advance(SILENCE_OF_LOST.total_seconds() - 1)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 1
    world.advance(1)
    world.settle()
    assert world.status.attempt == 2


def ended(world: World, code: int) -> World:
    for name in world.live():
        world.end(name, code)
    world.settle()
    world.advance(60)
    world.settle()
    return world


def suspended(world: World) -> World:
    world.spec = spec_of(suspend=True)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    return world


def restarted() -> World:
    """A job in its second attempt, whose pods run."""
    world = running_world()
    world.end("digits-a0-0", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(60)
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    assert sorted(world.live()) == ["digits-a1-0", "digits-a1-1"]
    return world


@pytest.mark.parametrize(
    "reached",
    [restarted, lambda: ended(restarted(), 0), lambda: suspended(restarted()), lambda: suspended(running_world())],
    ids=["running", "succeeded", "suspended", "suspended first"],
)
def test_a_pod_that_a_former_leader_creates_late_is_deleted_and_counts_for_nothing(
    reached: Callable[[], World],
) -> None:
    world = reached()
    before = world.status
    assert before is not None
    # Its request took effect after another process had gone on.
    late = next(pod for pod in running_world().pods.values() if pod.name == "digits-a0-1")
    world.pods["digits-a0-1"] = replace(late, uid="late")
    world.settle()
    assert world.pods["digits-a0-1"].deletion_time is not None
    del world.pods["digits-a0-1"]
    world.advance(6)
    world.settle()
    after = world.status
    assert after is not None
    assert (after.phase, after.attempt, after.restarts) == (before.phase, before.attempt, before.restarts)
