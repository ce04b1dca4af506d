"""What prevents pods from running."""

from dataclasses import replace

from world import World, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.observations.observed import Waiting


def test_an_image_that_cannot_be_pulled_is_named_with_what_to_check() -> None:
    world = World()
    world.settle()
    world.run("digits-a0-0")
    world.pods["digits-a0-1"] = replace(
        world.pods["digits-a0-1"], scheduled=True, trainer=Waiting("ImagePullBackOff", 'Back-off pulling image "i"')
    )
    world.advance(6)
    world.settle()
    assert world.status is not None
    ready = world.status.condition(ConditionType.RENDEZVOUS_READY)
    assert ready is not None
    assert ready.reason == "ImagePullBackOff"
    assert ready.message == (
        '1/2 nodes are up; digits-a0-1: ImagePullBackOff: Back-off pulling image "i": '
        "check spec.trainer.image and that the nodes can pull it"
    )


def test_what_the_scheduler_says_of_several_pods_is_said_once() -> None:
    world = World(spec=spec_of(nodes=3))
    world.settle()
    full = Waiting("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu")
    for name in ("digits-a0-0", "digits-a0-2"):
        world.pods[name] = replace(world.pods[name], obstacle=full)
    world.advance(6)
    world.settle()
    assert world.status is not None
    scheduled = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert scheduled is not None
    assert scheduled.message == (
        "0/3 pods have a node; pods digits-a0-0, digits-a0-2 (2): Unschedulable: 0/3 nodes are available: "
        "3 Insufficient cpu: check spec.trainer.resources, nodeSelector and tolerations against kubectl get nodes; "
        "digits-a0-1: waiting for a node"
    )
    ready = world.status.condition(ConditionType.RENDEZVOUS_READY)
    assert ready is not None
    assert (ready.reason, ready.message) == ("Unschedulable", "0/3 nodes are up; 3 without a node: see PodsScheduled")


def test_containers_that_a_webhook_has_added_are_named() -> None:
    world = World(spec=spec_of(template={"spec": {"containers": [{"name": "logs", "image": "l"}]}}))
    world.settle()
    world.run_all()
    for name, pod in world.pods.items():
        world.pods[name] = replace(pod, containers=("trainer", "logs", "istio-proxy", "istio-init"))
    world.advance(6)
    world.settle()
    assert world.status is not None
    scheduled = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert scheduled is not None
    assert scheduled.message == (
        "2 of 2 pods have a node; an admission webhook or policy has added the containers istio-init, istio-proxy"
    )
