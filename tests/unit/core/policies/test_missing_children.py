"""Objects that the pods share and that a user has deleted."""

from dataclasses import replace
from datetime import timedelta

from world import START, World, running_world, spec_of, words

from ddpjob_core.api import ConditionType
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.children.actions import Create
from ddpjob_core.children.launcher_config import launcher_config_name
from ddpjob_core.observations.observed import Rejection, RejectionKind

CLAIM = ObjectName("PersistentVolumeClaim", "digits-checkpoints")


def waiting_world(**fields: object) -> World:
    """A job whose pods wait for their volumes from this moment on."""
    world = World(spec=spec_of(**fields))
    world.settle()
    for name in world.pods:
        world.assign(name)
        pod = replace(world.pods[name], unadmitted_since=None, unmounted_since=world.now)
        world.pods[name] = replace(pod, launcher=launcher_config_name(world.observe().job, world.spec))
    return world


def checked(world: World) -> list[str]:
    """The kinds that are asked for at this moment."""
    plan = world.reconcile()
    return words(action for action in plan.actions if isinstance(action, Create))


def test_a_service_that_is_deleted_while_the_pods_run_is_created_again() -> None:
    world = running_world()
    world.service = None
    assert checked(world) == ["Create Service"]
    assert world.service is not None
    assert checked(world) == []


def test_a_service_whose_name_was_taken_meanwhile_is_waited_for_and_the_pods_run_on() -> None:
    world = running_world()
    world.service, world.foreign = None, {ObjectName("Service", "digits"): "an unknown owner"}
    world.advance(6)
    plan = world.reconcile()
    assert plan.actions == ()
    assert plan.status is not None
    told = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert told.reason == "NameTaken"
    assert plan.requeue_after == timedelta(seconds=10)


def test_what_no_watch_shows_is_asked_for_less_and_less_often_while_pods_wait_for_their_volumes() -> None:
    world = waiting_world(launcher="mpirun", checkpoint={"size": "1Gi"})
    asked: list[float] = []
    for _ in range(1000):
        kinds = checked(world)
        if kinds:
            assert kinds == ["Create ConfigMap", "Create PersistentVolumeClaim", "Create Secret"]
            asked.append((world.now - START).total_seconds())
        world.advance(1)
    assert asked == [10, 20, 40, 80, 160, 320, 620, 920]


def test_the_next_check_is_not_slept_through() -> None:
    world = waiting_world()
    assert world.reconcile().requeue_after is not None
    world.settle()
    world.advance(9)
    plan = world.reconcile()
    assert plan.requeue_after is not None
    assert plan.requeue_after <= timedelta(seconds=1)


def test_nothing_is_asked_for_while_pods_wait_for_a_node_or_an_image_or_run() -> None:
    world = World()
    world.settle()
    for _ in range(5):
        world.advance(60)
        assert checked(world) == []
    world.run_all()
    for _ in range(5):
        world.advance(60)
        assert checked(world) == []


def test_a_pod_that_waits_for_its_volumes_says_so_once_that_takes_unusually_long() -> None:
    world = waiting_world()
    world.advance(9)
    world.settle()
    assert world.status is not None
    ready = world.status.condition(ConditionType.RENDEZVOUS_READY)
    assert ready is not None
    assert "starting" in ready.message
    world.advance(6)
    world.settle()
    ready = world.status.condition(ConditionType.RENDEZVOUS_READY)
    assert ready is not None
    assert "waiting for its volumes or its network: kubectl describe pod digits-a0-0" in ready.message


def test_pods_that_wait_for_a_claim_that_is_being_deleted_make_way_for_it_uncounted() -> None:
    world = waiting_world(checkpoint={"size": "1Gi"})
    world.advance(10)
    assert "Create PersistentVolumeClaim" in checked(world)
    world.rejections = (Rejection(RejectionKind.BEING_DELETED, CLAIM, "it is being deleted"),)
    world.reconcile()
    assert world.status is not None
    assert (world.status.attempt, world.status.pods_created) == (1, False)
    assert (world.status.restarts.counted, world.status.restarts.ignored) == (0, 0)
    world.rejections = ()
    world.settle()
    assert not world.live()
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert [name for name in world.live() if "-a1-" in name] == ["digits-a1-0", "digits-a1-1"]
    assert words(world.requests[-3:]) == ["Create PersistentVolumeClaim", "Create Pod", "Create Pod"]


def test_each_launcher_that_pods_wait_for_comes_back_under_the_name_that_they_have() -> None:
    world = waiting_world(nodes=4)
    plain = launcher_config_name(world.observe().job, world.spec)
    # Of a dead process, of its successor, of an older version of the operator, and of a user who has guessed.
    names = (f"{plain}-a1", f"{plain}-b2", "digits-launcher-0123-c3", f"{plain}x")
    for pod, name in zip(sorted(world.pods), names, strict=True):
        world.pods[pod] = replace(world.pods[pod], launcher=name)
    assert created(world) == [f"{plain}-a1", f"{plain}-b2"]


def test_the_key_that_pods_wait_for_comes_back_under_the_name_that_they_have() -> None:
    world = waiting_world(nodes=2, launcher="mpirun")
    (key,) = {pod.ssh_key for pod in world.pods.values()}
    world.crash()
    assert created(world)[1:] == [key]


def created(world: World) -> list[str]:
    """What is created once pods have waited for long."""
    world.advance(10)
    return [action.manifest["metadata"]["name"] for action in world.reconcile().actions if isinstance(action, Create)]
