"""Suspending, deleting, repeating, mistyping: what happens to jobs in production."""

import re
from typing import Any

import pytest
from jobs import TORCH_IMAGE, ddpjob, program, scripted
from kubectl import Kubectl, KubectlError, wait_until

from hack.cluster.deploy import NAMESPACE as OPERATOR_NAMESPACE

# Runs until it is asked to stop.
PATIENT = "import signal; signal.pause()\n"


def own_objects(kubectl: Kubectl) -> list[str]:
    kinds = "pods,services,configmaps"
    text = kubectl("get", kinds, "-l", "app.kubernetes.io/managed-by=ddpjob", "-o", "name")
    return text.split()


def test_a_job_finishes_though_its_sidecar_does_not(kubectl: Kubectl) -> None:
    kubectl.apply(program("short", "print('done')\n"))
    sidecar = {"name": "sidecar", "image": TORCH_IMAGE, "command": ["sleep", "infinity"]}
    kubectl.apply(
        scripted(
            "sidecar",
            config_map="short",
            launcher="python",
            template={"spec": {"containers": [sidecar]}},
            gracePeriodSeconds=1,
        )
    )
    kubectl.wait_for_phase("sidecar", "Succeeded")
    wait_until(
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in kubectl.list("pods")) or None,
        "cleanPodPolicy Running to delete the pods whose sidecars still run",
    )


@pytest.mark.alone
def test_a_job_deleted_while_the_operator_is_down_leaves_nothing_behind(kubectl: Kubectl) -> None:
    kubectl.apply(program("patient", PATIENT))
    kubectl.apply(scripted("orphan", config_map="patient", launcher="python", gracePeriodSeconds=1))
    kubectl.wait_for_phase("orphan", "Running")
    assert len(own_objects(kubectl)) == 4
    operator = Kubectl(OPERATOR_NAMESPACE)
    operator("scale", "deployment", "ddpjob-operator", "--replicas=0")
    try:
        wait_until(lambda: not operator.list("pods"), "the operator to be gone")
        kubectl("delete", "ddpjob", "orphan", "--timeout=30s")
        wait_until(lambda: not own_objects(kubectl), "the children to be collected", 60, lambda: kubectl("get", "all"))
    finally:
        operator("scale", "deployment", "ddpjob-operator", "--replicas=1")
        operator("rollout", "status", "deployment/ddpjob-operator", "--timeout=60s")


def test_a_job_made_again_immediately_under_the_same_name_trains(kubectl: Kubectl) -> None:
    kubectl.apply(program("patient", PATIENT), program("short", "print('second')\n"))
    kubectl.apply(scripted("again", config_map="patient", launcher="python", gracePeriodSeconds=5))
    first = kubectl.wait_for_phase("again", "Running")["metadata"]["uid"]
    kubectl("delete", "ddpjob", "again", "--wait=true")
    kubectl.create(scripted("again", config_map="short", launcher="python"))
    job = kubectl.wait_for_phase("again", "Succeeded")
    assert job["metadata"]["uid"] != first
    assert job["status"]["restarts"]["counted"] == 0
    assert "second" in kubectl.logs("again-a0-0")


def test_a_template_that_the_api_server_refuses_fails_the_job_with_the_path_of_the_field(kubectl: Kubectl) -> None:
    kubectl.apply(program("short", "print('done')\n"))
    kubectl.apply(scripted("mistyped", config_map="short", template={"spec": {"nodeSelectr": {"a": "b"}}}))
    job = kubectl.wait_for_phase("mistyped", "Failed")
    failed = next(c for c in job["status"]["conditions"] if c["type"] == "Failed")
    assert failed["reason"] == "InvalidSpec"
    assert "nodeSelectr" in failed["message"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": 0}, r"spec\.nodes.*greater than or equal to 1"),
        ({"nods": 2}, r'unknown field "spec\.nods"'),
        ({"procsPerNode": "many"}, r"spec\.procsPerNode.*auto"),
        ({"rendezvous": {"backend": "etcd"}}, r"spec\.rendezvous\.backend.*supported values"),
        ({"trainer": {"image": "i", "script": "a.py", "module": "a"}}, r"spec\.trainer.*exactly one of script"),
        (
            {"trainer": {"image": "i", "script": "a.py", "env": [{"name": "RANK", "value": "0"}]}},
            r"spec\.trainer\.env.*reserved",
        ),
    ],
)
def test_an_invalid_spec_is_refused_by_the_api_server_with_a_message_that_names_the_field(
    kubectl: Kubectl, change: dict[str, Any], said: str
) -> None:
    job = ddpjob("invalid", trainer={"image": "i", "script": "a.py"})
    job["spec"].update(change)
    with pytest.raises(KubectlError) as refused:
        kubectl.create(job)
    assert re.search(said, str(refused.value), re.DOTALL)


def test_training_pods_carry_no_credential_and_shared_memory_of_the_node(kubectl: Kubectl) -> None:
    kubectl.apply(program("look", LOOK))
    kubectl.apply(scripted("look", config_map="look", launcher="python", nodes=1))
    kubectl.wait_for_phase("look", "Succeeded")
    said = kubectl.logs("look-a0-0")
    assert "token False" in said
    assert "service variables []" in said
    assert "tmpfs" in said


LOOK = """
import os
print("token", os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"))
print("service variables", [name for name in os.environ if name.startswith("LOOK_")])
print([line.split()[2] for line in open("/proc/mounts") if line.split()[1] == "/dev/shm"])
"""


@pytest.mark.pod_security("baseline")
def test_names_that_another_user_holds_are_named_and_waited_for(kubectl: Kubectl) -> None:
    foreign = [
        {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": TORCH_IMAGE, "command": ["sleep", "infinity"]}],
            },
        },
    ]
    names = ["taken", "taken-a0-1"]
    for body, name in zip(foreign, names, strict=True):
        kubectl.create({**body, "metadata": {"name": name}})
    kubectl.apply(program("short", "print('done')\n"), scripted("taken", config_map="short", launcher="python"))
    for body, name in zip(foreign, names, strict=True):

        def told(needle: str = f"{str(body['kind']).lower()} {name}") -> bool:
            conditions = kubectl.job("taken").get("status", {}).get("conditions", [])
            return any(c["reason"] == "NameTaken" and needle in c["message"] for c in conditions)

        wait_until(told, f"the condition to name {name}", 60, lambda: kubectl.story("taken"))
        kubectl("delete", str(body["kind"]), name, "--wait=true")
    kubectl.wait_for_phase("taken", "Succeeded")


def test_a_pod_that_loses_its_label_has_failed_and_is_deleted_all_the_same(kubectl: Kubectl) -> None:
    kubectl.apply(program("patient", PATIENT))
    kubectl.apply(scripted("strays", config_map="patient", launcher="python", gracePeriodSeconds=1))
    kubectl.wait_for_phase("strays", "Running")
    kubectl("label", "pod", "strays-a0-1", "app.kubernetes.io/managed-by-", "ddpjob.dev/job-", "ddpjob.dev/uid-")
    status = wait_until(
        lambda: next((s for s in [kubectl.job("strays")["status"]] if s["attempt"] == 1 and s["podsCreated"]), None),
        "the next attempt",
        60,
        lambda: kubectl.story("strays"),
    )
    assert status["failure"]["reason"] == "PodMissing"
    wait_until(lambda: kubectl.get("pod", "strays-a0-1") is None, "the pod without labels to be deleted")


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(kubectl: Kubectl) -> None:
    kubectl.apply(program("short", "print('done')\n"))
    kubectl.apply(scripted("brief", config_map="short", launcher="python", nodes=1, ttlSecondsAfterFinished=1))
    wait_until(lambda: kubectl.get("ddpjob", "brief") is None, "the job to be deleted", 90)
    wait_until(lambda: not own_objects(kubectl), "its children to be deleted", 60)
