"""Jobs and pods by the thousand, put into etcd as the API server would store them: creating them takes minutes."""

import base64
import http.client
import json
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ddpjob_core.api.constants import API_VERSION, KIND
from tests.apiserver.controlplane import ControlPlane, Json

_TIME: Final = "2026-01-01T12:00:00Z"


def store(plane: ControlPlane, objects: Iterable[Json], *, at_once: int = 100) -> None:
    """Store whole jobs or pods.

    Args:
        plane: whose etcd they are put into.
        objects: the objects.
        at_once: number of objects in a transaction; those of one must have less than 2 MB together.
    """
    connection = http.client.HTTPConnection("127.0.0.1", plane.etcd_port, timeout=60)
    try:
        rest = iter(objects)
        while part := list(islice(rest, at_once)):
            puts = [{"requestPut": {"key": _encoded(_key(each)), "value": _encoded(_text(each))}} for each in part]
            connection.request("POST", "/v3/kv/txn", json.dumps({"success": puts}))
            answer = connection.getresponse()
            assert answer.status == http.HTTPStatus.OK, answer.read()
            answer.read()
    finally:
        connection.close()


def finished_jobs(namespace: str, count: int) -> Iterator[Json]:
    """Jobs that succeeded or failed, as the operator leaves them."""
    for number in range(count):
        yield job_of(namespace, f"job-{number:05d}", status=_status(number, failed=number % 3 == 0))


def job_of(namespace: str, name: str, *, status: Json | None = None, **spec: object) -> Json:
    """A job as it is stored, all defaults filled in as the API server does."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": _TIME,
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}" * 300},
    }
    whole = {
        "nodes": 2,
        "procsPerNode": 2,
        "launcher": "torchrun",
        "backend": "auto",
        "rendezvous": {"backend": "c10d", "port": 29500, "timeoutSeconds": 600},
        "trainer": {
            "image": "registry.example.com/team/trainer:2026-01-01",
            "module": "team.project.train",
            "args": ["--total-epochs", "20", "--save-every", "5", "--batch-size", "32", "--data", "/data/set"],
            "env": [{"name": f"VARIABLE_{number}", "value": f"value-{number}"} for number in range(5)],
            "resources": {"limits": {"cpu": "2", "memory": "8Gi"}},
        },
        "template": {"spec": {"volumes": [{"name": "data", "emptyDir": {}}], "nodeSelector": {"pool": "train"}}},
        "restart": {"maxRestarts": 3, "backoffSeconds": 1, "maxBackoffSeconds": 60, "noProgressLimit": 3},
        "progressDeadline": {"seconds": 600, "action": "Warn"},
        "suspend": False,
        "cleanPodPolicy": "Running",
        "gracePeriodSeconds": 30,
        "metrics": {"port": 9401},
        **spec,
    }
    job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": whole}
    return job if status is None else {**job, "status": status}


def suspended_status() -> Json:
    """The status of a job that was suspended before it had any pod."""
    return {
        "phase": "Suspended",
        "conditions": [_condition("Suspended", "True", "Suspended", "set spec.suspend to false to resume it")],
        "observedGeneration": 1,
        "attempt": 0,
        "podsCreated": False,
        "restarts": {"counted": 0, "ignored": 0, "process": 0, "inARow": 0, "withoutProgress": 0},
    }


def _condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "observedGeneration": 1,
        "lastTransitionTime": _TIME,
        "reason": reason,
        "message": message,
    }


def _status(number: int, *, failed: bool) -> Json:
    def condition(kind: str, status: str, reason: str) -> Json:
        return _condition(kind, status, reason, f"the job has finished after {number} steps")

    end = condition("Failed", "True", "BackoffLimitExceeded") if failed else condition("Succeeded", "True", "Succeeded")
    failure = {
        "rank": 1,
        "ordinal": 0,
        "pod": f"job-{number:05d}-a0-0",
        "nodeName": "node-1",
        "attempt": 0,
        "class": "Error",
        "exitCode": 1,
        "reason": "ExitCode",
        "message": "ValueError: bad sample in shard 7",
        "traceback": '  File "train.py", line 10, in main\n' * 10,
        "consequences": ["rank 0: connection lost"],
    }
    return {
        "phase": "Failed" if failed else "Succeeded",
        "conditions": [
            condition("PodsScheduled", "True", "Scheduled"),
            condition("RendezvousReady", "True", "Ready"),
            condition("Training", "False", "Finished"),
            end,
        ],
        "observedGeneration": 1,
        "attempt": 0,
        "podsCreated": True,
        "restarts": {"counted": 0, "ignored": 0, "process": 0, "inARow": 0, "withoutProgress": 0},
        "nodes": {"desired": 2, "ready": 0, "succeeded": 0 if failed else 2, "failed": 1 if failed else 0},
        "replicas": 2,
        "selector": "ddpjob.dev/uid=0",
        "procsPerNode": 2,
        "backend": "gloo",
        "startTime": _TIME,
        "attemptStartTime": _TIME,
        "firstStepTime": _TIME,
        "completionTime": _TIME,
        "progress": {"attempt": 0, "epoch": 20, "totalEpochs": 20, "step": 600, "totalSteps": 600, "percent": 100},
        "summary": {"nodes": "2/2", "epoch": "20/20", "step": "600/600", "loss": "0.0831", "eta": "", "speed": ""},
        **({"failure": failure} if failed else {}),
    }


def pod_of(namespace: str, name: str, *, env: Iterable[Json] = ()) -> Json:
    """A pod as it is stored, with the label of ours that anyone may give to their pods."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/trainer:2026-01-01",
        "env": list(env),
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": _TIME,
            "labels": {"app.kubernetes.io/managed-by": "ddpjob"},
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


def _key(each: Json) -> str:
    metadata = each["metadata"]
    folder = "pods" if each["kind"] == "Pod" else "ddpjob.dev/ddpjobs"
    return f"/registry/{folder}/{metadata['namespace']}/{metadata['name']}"


def _text(each: Json) -> str:
    # Not escaped: etcd has no more than the API server itself would have written.
    return json.dumps(each, separators=(",", ":"), ensure_ascii=False)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
