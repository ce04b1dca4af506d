"""How actions are carried out; what an API server decides is tested against one."""

import pytest
from reconciling import SHARED, Bench, manifest, pods

from ddpjob_core.api.errors import AlreadyExists, Conflict, NotFound, Unavailable
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.children.actions import Action, Create, DeleteJob, DeletePod, DeleteStray
from ddpjob_core.decide import Plan
from ddpjob_core.observations.observed import RejectionKind


async def test_a_pod_that_a_dead_process_had_created_counts_as_created(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = AlreadyExists("there")
    bench.kube.objects["get pods digits-a0-0"] = manifest("digits-a0-0", uid="p")
    assert await bench.look(Plan(actions=pods(1))) == ["create pods digits-a0-0", "get pods digits-a0-0"]
    await bench.look()
    assert [pod.uid for pod in bench.observed[-1].pods] == ["p"]


@pytest.mark.parametrize("resource", ["pods", "services", "configmaps"])
async def test_a_name_that_is_taken_is_reported_with_its_owner(bench: Bench, resource: str) -> None:
    actions: dict[str, Action] = {
        "pods": Create(manifest("x")),
        "services": Create(manifest("x", "Service")),
        "configmaps": Create(manifest("x", "ConfigMap")),
    }
    bench.kube.failures[f"create {resource} x"] = AlreadyExists("there")
    others = [{"uid": "other", "controller": True, "kind": "Deployment", "name": "web"}]
    bench.kube.objects[f"get {resource} x"] = manifest("x", uid="p", ownerReferences=others)
    await bench.look(Plan(actions=(actions[resource],)))
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.NAME_TAKEN
    assert "Deployment web (uid other)" in rejection.message


async def test_a_key_that_a_dead_process_had_created_counts_as_created_and_is_not_read(bench: Bench) -> None:
    key = Create(manifest("digits-ssh", "Secret"))
    bench.kube.failures["create secrets digits-ssh"] = AlreadyExists("there")
    assert await bench.look(Plan(actions=(key,))) == ["create secrets digits-ssh"]
    await bench.look()
    assert bench.observed[-1].known == {ObjectName("Secret", "digits-ssh")}
    assert not bench.observed[-1].rejections


async def test_pods_wait_for_the_service_that_they_are_found_by(bench: Bench) -> None:
    bench.kube.failures["create services digits"] = Unavailable("busy")
    requests = await bench.look(Plan(actions=(*pods(2), *SHARED)))
    assert requests == ["create services digits", "create configmaps digits-launcher"]


async def test_a_pod_that_is_gone_or_replaced_counts_as_deleted(bench: Bench) -> None:
    await bench.look(Plan(actions=pods(2)))
    uids = [pod.uid for pod in bench.caches.pods]
    bench.kube.failures[f"delete pods digits-a0-0 {uids[0]}"] = NotFound("gone")
    bench.kube.failures[f"delete pods digits-a0-1 {uids[1]}"] = Conflict("another uid")
    actions = tuple(DeletePod(f"digits-a0-{ordinal}", uids[ordinal]) for ordinal in range(2))
    await bench.look(Plan(actions=actions))
    await bench.look()
    assert bench.observed[-1].pods == ()


async def test_a_stray_is_deleted_only_where_it_is_this_jobs_own(bench: Bench) -> None:
    bench.kube.objects["get pods mine"] = manifest("mine", uid="p1", labels={})
    bench.kube.objects["get pods other"] = manifest("other", uid="p2", ownerReferences=[])
    requests = await bench.look(Plan(actions=(DeleteStray("mine"), DeleteStray("other"), DeleteStray("gone"))))
    assert [request for request in requests if request.startswith("delete")] == ["delete pods mine p1"]


async def test_a_job_that_was_deleted_is_not_deleted_again(bench: Bench) -> None:
    plan = Plan(actions=(DeleteJob("job-uid"),))
    assert await bench.look(plan) == ["delete ddpjobs digits job-uid"]
    assert await bench.look(plan) == []
