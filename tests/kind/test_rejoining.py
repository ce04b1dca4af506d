"""Elastic jobs that lose a node while they train: the ranks of the others keep their processes."""

from typing import Any

import pytest
from jobs import program
from kubectl import Kubectl, wait_until
from steady import EPOCHS, LOSS, RESUMED, STEADY, STEPS_PER_EPOCH, claim, losses, resilient, trains

pytestmark = pytest.mark.timeout(600)

# Long enough for three losses, one after the other.
LONGER = 5 * EPOCHS
PROCESSES = STEADY.replace("environment = current", 'print("process of a rank", flush=True)\nenvironment = current')
LOSSES = PROCESSES.replace(f"total_epochs={EPOCHS}", f"total_epochs={LONGER}")


def rejoined(kubectl: Kubectl, name: str, generation: int) -> dict[str, Any]:
    """The job's status once its ranks make steps with the pods of a generation."""

    def look() -> dict[str, Any] | None:
        status: dict[str, Any] = kubectl.job(name)["status"]
        assert status["attempt"] == 0, kubectl.story(name)
        there = status["membership"]["generation"] == generation and "rejoining" not in status["membership"]
        return status if there else None

    return wait_until(look, f"{name} to go on", 120, lambda: kubectl.story(name))


def counts(status: dict[str, Any]) -> dict[str, int]:
    return {key: status["restarts"].get(key, 0) for key in ("counted", "ignored", "process")}


def test_a_job_loses_nodes_and_the_others_go_on_as_if_nothing_had_happened(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", LOSSES), resilient("undisturbed"))
    kubectl.apply(resilient("loses", elastic={"maxNodes": 2}))
    trains(kubectl, "loses", beyond=10)
    # Gone at once, as with its machine; then as a person deletes it; then as its node is drained.
    kubectl("delete", "pod", "loses-a0-1", "--grace-period=0", "--force")
    status = rejoined(kubectl, "loses", 1)
    assert counts(status) == {"counted": 1, "ignored": 0, "process": 0}
    trains(kubectl, "loses", beyond=status["progress"]["step"] + 5)
    kubectl("delete", "pod", "loses-a0-1-1", "--wait=false")
    status = rejoined(kubectl, "loses", 2)
    trains(kubectl, "loses", beyond=status["progress"]["step"] + 5)
    kubectl.evict("loses-a0-1-2")
    rejoined(kubectl, "loses", 3)
    status = kubectl.wait_for_phase("loses", "Succeeded")["status"]
    assert counts(status) == {"counted": 2, "ignored": 1, "process": 0}
    assert (status["attempt"], "failure" in status) == (0, False)
    kubectl.wait_for_phase("undisturbed", "Succeeded")
    expected = losses(kubectl.logs("undisturbed-a0-0"))
    assert len(expected) == LONGER * STEPS_PER_EPOCH
    log = kubectl.logs("loses-a0-0")
    assert log.count("process of a rank") == 1
    assert RESUMED.search(log) is None
    made = [int(step) for step, _, _ in LOSS.findall(log)]
    # No step is made again, and of each that is lost alone the mean loss may not be known.
    assert made == sorted(set(made))
    assert len(made) >= len(expected) - 3
    assert losses(log).items() <= expected.items()
    events = kubectl("get", "events", "--field-selector", "involvedObject.name=loses,involvedObject.kind=DDPJob")
    assert events.count("NodeRejoined") >= 1
    assert "another pod takes its place, and the other nodes go on with it (not counted)" in events


@pytest.mark.full
def test_two_of_three_nodes_are_lost_together(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", PROCESSES), resilient("both", nodes=3, elastic={"maxNodes": 3}))
    trains(kubectl, "both", beyond=10)
    kubectl("delete", "pod", "both-a0-1", "both-a0-2", "--grace-period=0", "--force")
    status = kubectl.wait_for_phase("both", "Succeeded")["status"]
    assert (status["attempt"], counts(status)) == (0, {"counted": 1, "ignored": 0, "process": 0})
    assert kubectl.logs("both-a0-0").count("process of a rank") == 1


def test_without_node_0_all_nodes_start_again(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", PROCESSES), resilient("headless", elastic={"maxNodes": 2}))
    trains(kubectl, "headless", beyond=10)
    kubectl("delete", "pod", "headless-a0-0", "--grace-period=0", "--force")
    status = kubectl.wait_for_phase("headless", "Succeeded")["status"]
    assert (status["attempt"], counts(status)) == (1, {"counted": 1, "ignored": 0, "process": 0})


@pytest.mark.full
def test_without_room_for_another_pod_the_node_that_is_left_goes_on_and_the_lost_one_joins_later(
    kubectl: Kubectl,
) -> None:
    job = resilient("late", elastic={"maxNodes": 2, "rejoinSeconds": 8})
    kubectl.apply(claim(), program("steady", PROCESSES), job)
    trains(kubectl, "late", beyond=10)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "1"}}}
    kubectl.apply(quota)
    kubectl("delete", "pod", "late-a0-1", "--grace-period=0", "--force")

    def has(nodes: int) -> bool:
        status = kubectl.job("late")["status"]
        assert status["attempt"] == 0, kubectl.story("late")
        return bool(status["membership"]["nodes"] == nodes and "rejoining" not in status["membership"])

    wait_until(lambda: has(1), "one node to go on", 60, lambda: kubectl.story("late"))
    assert "no room for another pod" in kubectl.job("late")["status"]["failure"]["message"]
    kubectl("delete", "resourcequota", "full")
    wait_until(lambda: has(2), "the other node to join", 120, lambda: kubectl.story("late"))
    status = kubectl.wait_for_phase("late", "Succeeded")["status"]
    assert (status["attempt"], counts(status)) == (0, {"counted": 1, "ignored": 0, "process": 0})


def test_a_spare_node_takes_the_place_of_a_lost_one_and_stays_in_order_when_the_size_changes(kubectl: Kubectl) -> None:
    job = resilient("spared", nodes=3, elastic={"maxNodes": 3, "spareNodes": 1})
    kubectl.apply(claim(), program("steady", LOSSES), job)
    trains(kubectl, "spared", beyond=10)
    kubectl("wait", "--for=condition=SpareNodesReady", "ddpjob/spared", "--timeout=120s")
    kubectl("delete", "pod", "spared-a0-1", "--grace-period=0", "--force")
    status = rejoined(kubectl, "spared", 1)
    assert status["membership"]["members"] == [{"ordinal": 1, "generation": 1, "spare": 1}]
    named = kubectl.get("pod", "spared-a0-s1")
    assert named is not None
    labels = named["metadata"]["labels"]
    assert (labels["ddpjob.dev/ordinal"], "ddpjob.dev/spare" in labels) == ("1", False)
    assert kubectl.logs("spared-a0-0").count("process of a rank") == 1
    # From here on torch orders all nodes again, by names of which that of the spare is none.
    kubectl("scale", "ddpjob", "spared", "--replicas=2")
    status = kubectl.wait_for_phase("spared", "Succeeded")["status"]
    assert (status["attempt"], counts(status)) == (0, {"counted": 1, "ignored": 0, "process": 0})
    assert status["membership"]["nodes"] == 2
    assert "node 1 of 2" in kubectl.logs("spared-a0-s1")
