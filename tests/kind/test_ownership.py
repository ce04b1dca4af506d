"""Whose the pods and objects are that the operator counts on, and what becomes of those that are gone."""

from typing import Any

import pytest
from jobs import TORCH_IMAGE, program, scripted
from kubectl import Kubectl, wait_until

pytestmark = pytest.mark.pod_security("baseline")


def test_forged_pods_of_another_namespace_do_not_count_and_a_launcher_that_pods_wait_for_comes_back(
    kubectl: Kubectl, elsewhere: Kubectl
) -> None:
    # The program comes later: until then the pod waits for its volumes.
    kubectl.apply(scripted("waits", config_map="late", nodes=1, launcher="python"))
    wait_until(lambda: kubectl.list("pods", "ddpjob.dev/job=waits"), "its pod")
    uid = kubectl.job("waits")["metadata"]["uid"]
    elsewhere.apply(forged("waits", uid))
    wait_until(lambda: has_ended(elsewhere, "waits-a0-0"), "the forged pod to end, or to be collected")
    (launcher,) = (each["metadata"]["name"] for each in kubectl.list("configmaps", "ddpjob.dev/job=waits"))
    kubectl("delete", "configmap", launcher)
    wait_until(
        lambda: [each for each in kubectl.list("configmaps") if each["metadata"]["name"] == launcher],
        "the launcher to come back",
        60,
    )
    assert kubectl.phase("waits") == "Starting"
    kubectl.apply(program("late", "print('done')\n"))
    job = kubectl.wait_for_phase("waits", "Succeeded")
    assert (job["status"]["attempt"], job["status"]["restarts"]["counted"]) == (0, 0)


def test_an_init_container_that_fails_is_named(kubectl: Kubectl) -> None:
    kubectl.apply(program("never", "print('done')\n"))
    fails = {"name": "fetch", "image": TORCH_IMAGE, "command": ["sh", "-c", "echo no such bucket; exit 3"]}
    template = {"spec": {"initContainers": [{**fails, "terminationMessagePolicy": "FallbackToLogsOnError"}]}}
    kubectl.apply(scripted("init", config_map="never", nodes=1, template=template, restart={"maxRestarts": 0}))
    failure = kubectl.wait_for_phase("init", "Failed")["status"]["failure"]
    assert (failure["reason"], failure["class"], failure["exitCode"]) == ("InitContainerFailed", "Error", 3)
    assert failure["message"] == "the init container fetch of init-a0-0 exited with code 3: no such bucket"


def forged(job: str, uid: str) -> dict[str, Any]:
    """A pod that ends with 0 and names a job of another namespace as its controller."""
    owner = {"apiVersion": "ddpjob.dev/v1alpha1", "kind": "DDPJob", "name": job, "uid": uid, "controller": True}
    labels = {
        "app.kubernetes.io/managed-by": "ddpjob",
        "ddpjob.dev/job": job,
        "ddpjob.dev/uid": uid,
        "ddpjob.dev/attempt": "0",
        "ddpjob.dev/ordinal": "0",
    }
    container = {"name": "trainer", "image": TORCH_IMAGE, "command": ["true"], "imagePullPolicy": "IfNotPresent"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{job}-a0-0", "labels": labels, "ownerReferences": [owner]},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def has_ended(kubectl: Kubectl, pod: str) -> bool:
    left = [each for each in kubectl.list("pods") if each["metadata"]["name"] == pod]
    return not left or left[0]["status"].get("phase") == "Succeeded"
