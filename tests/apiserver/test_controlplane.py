"""The harness does to a control plane what the fault tests rely on."""

import http.client
import json
import ssl
from pathlib import Path

import pytest
import yaml

from tests.apiserver.controlplane import OPERATOR_USER, ApiError, Client, ControlPlane, Json, wait_for

JOBS = "/apis/ddpjob.dev/v1alpha1"
JOB = {
    "apiVersion": "ddpjob.dev/v1alpha1",
    "kind": "DDPJob",
    "metadata": {"name": "digits"},
    "spec": {"trainer": {"image": "i", "script": "train.py"}},
}


def operator_of(plane: ControlPlane) -> Client:
    token = yaml.safe_load(plane.operator_kubeconfig.read_text())["users"][0]["user"]["token"]
    return Client(plane.port, plane.admin.ca, token)


def test_the_operators_kubeconfig_is_its_service_account_with_its_permissions_alone(
    control_plane: ControlPlane, namespace: str
) -> None:
    operator = operator_of(control_plane)
    begun = control_plane.audit_size
    assert operator.items(f"{JOBS}/namespaces/{namespace}/ddpjobs") == []
    with pytest.raises(ApiError) as refused:
        operator.items(f"/api/v1/namespaces/{namespace}/secrets")
    assert refused.value.code == 403
    # After a change of the CRD, by another test, the server refuses requests for a moment.
    entries = [each for each in control_plane.audit(namespace, after=begun) if each["responseStatus"]["code"] != 429]
    assert [(entry["verb"], entry["responseStatus"]["code"]) for entry in entries] == [("list", 200), ("list", 403)]
    assert {entry["user"]["username"] for entry in entries} == {OPERATOR_USER}


def test_what_a_job_owns_is_collected_with_it(admin: Client, namespace: str) -> None:
    job = admin.create({**JOB, "metadata": {"name": "digits", "namespace": namespace}})
    owner = {"apiVersion": job["apiVersion"], "kind": "DDPJob", "name": "digits", "uid": job["metadata"]["uid"]}
    child = {"name": "child", "namespace": namespace, "ownerReferences": [owner]}
    admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": child})
    admin.delete(f"{JOBS}/namespaces/{namespace}/ddpjobs/digits")
    path = f"/api/v1/namespaces/{namespace}/configmaps/child"
    wait_for(lambda: admin.find(path) is None, "the child to be collected")


def test_a_paused_api_server_is_silent_and_answers_again_when_resumed(breakable_control_plane: ControlPlane) -> None:
    with breakable_control_plane.paused(), pytest.raises(TimeoutError):
        breakable_control_plane.admin.request("GET", "/version", timeout=0.3)
    assert breakable_control_plane.admin.get("/version")["major"] == "1"


def test_after_a_kill_and_a_compaction_a_watch_from_an_old_version_is_gone(
    breakable_control_plane: ControlPlane,
) -> None:
    plane = breakable_control_plane
    namespace = plane.new_namespace()
    collection = f"{JOBS}/namespaces/{namespace}/ddpjobs"
    old = plane.admin.get(collection)["metadata"]["resourceVersion"]
    plane.admin.create({**JOB, "metadata": {"name": "digits", "namespace": namespace}})
    plane.compact()
    plane.kill()
    with pytest.raises(OSError, match="refused"):
        plane.admin.get("/version")
    plane.start_api_server()

    def answer() -> int | None:
        event = first_event(plane.admin, f"{collection}?watch=true&resourceVersion={old}")
        code: int = event.get("object", event)["code"]
        # While it fills its caches, the server refuses every watch for now.
        return None if code == 429 else code

    assert wait_for(answer, "an answer to the watch") == 410
    assert [job["metadata"]["name"] for job in plane.admin.items(collection)] == ["digits"]


def first_event(client: Client, address: str) -> Json:
    context = ssl.create_default_context(cafile=str(client.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", client.port, context=context, timeout=10)
    try:
        connection.request("GET", address, headers={"Authorization": f"Bearer {client.token}"})
        event: Json = json.loads(connection.getresponse().readline())
    finally:
        connection.close()
    return event


def test_a_folder_without_the_programs_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has no etcd, kube-apiserver"):
        ControlPlane.start(tmp_path, tmp_path / "plane")
