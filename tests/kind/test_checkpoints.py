"""Volumes for checkpoints: made, kept or removed with their job, and continued by another one."""

import pytest
from jobs import program, scripted
from kubectl import Kubectl, wait_until
from steady import EPOCHS, STEADY, STEPS_PER_EPOCH, losses, resilient, resumed_at, trains

SIZE = {"size": "1Gi", "storageClassName": "ddpjob-shared"}
LAST = EPOCHS * STEPS_PER_EPOCH

pytestmark = pytest.mark.timeout(500)


def claims(kubectl: Kubectl) -> set[str]:
    return {found["metadata"]["name"] for found in kubectl.list("pvc")}


def test_a_claim_is_made_kept_or_removed_and_its_checkpoints_are_continued_by_name(kubectl: Kubectl) -> None:
    kubectl.apply(program("steady", STEADY), resilient("first", nodes=1, checkpoint=SIZE))
    trains(kubectl, "first")
    kubectl.patch("ddpjob", "first", {"spec": {"suspend": True}})
    reached = kubectl.wait_for_phase("first", "Suspended")["status"]["progress"]["lastCheckpointStep"]
    kubectl("delete", "ddpjob", "first")
    assert "first-checkpoints" in claims(kubectl), "spec.checkpoint.retain is Retain where it is left out"

    # Of the same name, it takes up the volume that was kept, and continues what it names.
    again = resilient("first", nodes=1, checkpoint={**SIZE, "resumeFrom": "first"})
    kubectl.apply(again)
    kubectl.wait_for_phase("first", "Succeeded")
    log = kubectl.logs("first-a0-0")
    assert resumed_at(log) == reached
    assert sorted(losses(log)) == list(range(reached + 1, LAST + 1))

    # Of another name, on the same volume.
    other = resilient("second", nodes=1, checkpoint={"claimName": "first-checkpoints", "resumeFrom": "first"})
    once = {"maxRestarts": 0, "maxProcessRestarts": 0}
    nobodys = {"claimName": "first-checkpoints", "resumeFrom": "nobody"}
    kubectl.apply(other, resilient("lost", nodes=1, checkpoint=nobodys, restart=once))
    kubectl.wait_for_phase("second", "Succeeded")
    assert resumed_at(kubectl.logs("second-a0-0")) == LAST, "the newest checkpoint of the newest job of that name"
    failure = kubectl.wait_for_phase("lost", "Failed")["status"]["failure"]
    assert "nobody" in failure["message"]
    assert "first" in failure["message"], "it tells which jobs have files there"


def test_a_claim_that_is_to_go_with_its_job_does(kubectl: Kubectl) -> None:
    removed = scripted("brief", config_map="short", nodes=1, launcher="python", checkpoint={**SIZE, "retain": "Delete"})
    kubectl.apply(program("short", "print('done')\n"), removed)
    kubectl.wait_for_phase("brief", "Succeeded")
    assert claims(kubectl) == {"brief-checkpoints"}
    kubectl("delete", "ddpjob", "brief")
    wait_until(lambda: not claims(kubectl), "the claim to go", 60, lambda: kubectl.story("brief"))
