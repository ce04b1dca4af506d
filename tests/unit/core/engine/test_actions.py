"""How actions are carried out; what an API server decides is tested against one."""

import asyncio
from typing import Any

import pytest
from reconciling import KEY, SHARED, STATUS, Bench, manifest, pod_of, pods

from ddpjob_core.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.network_policy import content_of
from ddpjob_core.api.resources import Resource
from ddpjob_core.api.status import Membership
from ddpjob_core.children.actions import (
    Action,
    AnnounceMembership,
    Create,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeleteStray,
)
from ddpjob_core.children.pod import PodBuilder, build_pod
from ddpjob_core.decide import Plan
from ddpjob_core.engine.actions import MOST_PODS
from ddpjob_core.engine.window import LARGEST_WINDOW
from ddpjob_core.observations.observed import RejectionKind

POLICY = {
    **manifest("digits", "NetworkPolicy"),
    "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": []}]},
}
READS = {"pods": "find", "services": "find", "persistentvolumeclaims": "get"}


async def test_a_pod_that_a_dead_process_had_created_counts_as_created(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = AlreadyExists("there")
    job = bench.caches.jobs.get(*KEY)
    assert job is not None
    assert job.spec is not None
    found = build_pod(job, job.spec, 0, 0)
    found["metadata"]["uid"] = "p"
    bench.kube.objects["find pods digits-a0-0"] = found
    assert await bench.look(Plan(actions=pods(1))) == ["create pods digits-a0-0", "find pods digits-a0-0"]
    await bench.look()
    assert [pod.uid for pod in bench.observed[-1].pods] == ["p"]


@pytest.mark.parametrize(
    ("resource", "name"), [("pods", "digits-a0-0"), ("services", "x"), ("persistentvolumeclaims", "x")]
)
async def test_a_name_that_is_taken_is_reported_with_its_owner(bench: Bench, resource: str, name: str) -> None:
    actions: dict[str, Action] = {
        "pods": CreatePod("digits-a0-0", 0, 0),
        "services": Create(manifest("x", "Service")),
        "persistentvolumeclaims": Create(manifest("x", "PersistentVolumeClaim")),
    }
    bench.kube.failures[f"create {resource} {name}"] = AlreadyExists("there")
    others = [{"uid": "other", "controller": True, "kind": "Deployment", "name": "web"}]
    bench.kube.objects[f"{READS[resource]} {resource} {name}"] = manifest(name, uid="p", ownerReferences=others)
    await bench.look(Plan(actions=(actions[resource],)))
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.NAME_TAKEN
    assert "Deployment web (uid other)" in rejection.message


async def test_a_launcher_whose_answer_was_lost_counts_as_created_and_is_not_read(bench: Bench) -> None:
    launcher = Create(manifest("digits-launcher-1-a", "ConfigMap"))
    bench.kube.failures["create configmaps digits-launcher-1-a"] = AlreadyExists("there")
    assert await bench.look(Plan(actions=(launcher,))) == ["create configmaps digits-launcher-1-a"]
    await bench.look()
    assert set(bench.observed[-1].known) == {ObjectName("ConfigMap", "digits-launcher-1-a")}
    assert not bench.observed[-1].rejections


async def test_a_key_that_a_dead_process_had_created_counts_as_created_and_is_not_read(bench: Bench) -> None:
    key = Create(manifest("digits-ssh", "Secret"))
    bench.kube.failures["create secrets digits-ssh"] = AlreadyExists("there")
    assert await bench.look(Plan(actions=(key,))) == ["create secrets digits-ssh"]
    await bench.look()
    assert set(bench.observed[-1].known) == {ObjectName("Secret", "digits-ssh")}
    assert not bench.observed[-1].rejections


@pytest.mark.parametrize("resource", ["services", "persistentvolumeclaims"])
async def test_an_object_that_is_being_deleted_is_not_taken_for_created(bench: Bench, resource: str) -> None:
    kinds = {"services": "Service", "persistentvolumeclaims": "PersistentVolumeClaim"}
    bench.kube.failures[f"create {resource} x"] = AlreadyExists("there")
    bench.kube.objects[f"{READS[resource]} {resource} x"] = manifest(
        "x", uid="p", deletionTimestamp="2026-01-01T00:00:00Z"
    )
    await bench.look(Plan(actions=(Create(manifest("x", kinds[resource])), *pods(1))))
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.BEING_DELETED
    assert not bench.observed[-1].known
    assert not bench.observed[-1].pods


async def test_a_key_that_is_being_deleted_is_known_by_the_servers_words(bench: Bench) -> None:
    there = AlreadyExists('object is being deleted: secrets "digits-ssh" already exists')
    bench.kube.failures["create secrets digits-ssh"] = there
    await bench.look(Plan(actions=(Create(manifest("digits-ssh", "Secret")),)))
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.BEING_DELETED
    assert not bench.observed[-1].known


@pytest.mark.parametrize("change", [{"name": "team-x"}, {"labels": {}}])
async def test_a_pod_that_was_changed_on_the_way_is_deleted_at_once_and_reported(
    bench: Bench, change: dict[str, Any]
) -> None:
    bench.kube.mutate = lambda raw: {**raw, "metadata": {**raw["metadata"], **change}}
    requests = await bench.look(Plan(actions=pods(3)))
    name = change.get("name", "digits-a0-0")
    assert requests == ["create pods digits-a0-0", f"delete pods {name} uid-101"]
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert (rejection.kind, rejection.object) == (RejectionKind.ALTERED, ObjectName("Pod", "digits-a0-0"))
    assert "has changed metadata." in rejection.message
    assert bench.observed[-1].pods == ()


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
    bench.kube.objects["find pods mine"] = manifest("mine", uid="p1", labels={})
    bench.kube.objects["find pods other"] = manifest("other", uid="p2", ownerReferences=[])
    requests = await bench.look(Plan(actions=(DeleteStray("mine"), DeleteStray("other"), DeleteStray("gone"))))
    assert [request for request in requests if request.startswith("delete")] == ["delete pods mine p1"]


async def test_a_job_that_was_deleted_is_not_deleted_again(bench: Bench) -> None:
    plan = Plan(actions=(DeleteJob("job-uid"),))
    assert await bench.look(plan) == ["delete ddpjobs digits job-uid at 7"]
    assert await bench.look(plan) == []


async def test_a_job_is_deleted_in_the_version_that_was_decided_on(bench: Bench) -> None:
    expired = Plan(status=STATUS, urgent=True, actions=(DeleteJob("job-uid"),))
    # Its status is written first, which makes a version of its own.
    assert await bench.look(expired) == ["status at 7", "delete ddpjobs digits job-uid at 101"]


async def test_a_job_that_was_changed_in_the_moment_of_its_deletion_stays_and_is_decided_on_again(bench: Bench) -> None:
    bench.kube.failures["delete ddpjobs digits job-uid at 7"] = Conflict("it has changed")
    await bench.look(Plan(actions=(DeleteJob("job-uid"),)))
    assert bench.caches.jobs.get(*KEY) is not None
    assert bench.delays


@pytest.mark.parametrize("change", ["deleted", "being deleted", "suspended"])
async def test_no_more_pods_are_created_once_the_job_is_deleted_or_changed(bench: Bench, change: str) -> None:
    def happen(pod: str) -> None:
        if pod != "digits-a0-030":
            return
        if change == "deleted":
            bench.caches.jobs.forget("default", "digits", "job-uid")
        elif change == "being deleted":
            bench.job(version="9", nodes=1000, deleting=True)
        else:
            bench.job(version="9", nodes=1000, generation=2, suspend=True)

    bench.job(version="8", nodes=1000)
    bench.kube.before_create = happen
    requests = await bench.look(Plan(actions=pods(1000, nodes=1000)))
    assert 31 <= len(requests) <= 63


async def test_a_small_job_takes_one_round_trip_and_few_pods_of_a_large_one_are_posted_before_an_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = asyncio.Event()
    posted: list[str] = []
    create = bench.kube.create

    async def slow(resource: Resource, manifest: Any, *, strict: bool = False) -> Any:
        posted.append(manifest["metadata"]["name"])
        await answered.wait()
        return await create(resource, manifest, strict=strict)

    monkeypatch.setattr(bench.kube, "create", slow)
    bench.kube.failures = {f"create pods digits-a0-{n}": Invalid("spec.x: bad") for n in range(10)}
    looking = asyncio.create_task(bench.look(Plan(actions=pods(10))))
    await asyncio.sleep(0.01)
    assert posted == [f"digits-a0-{n}" for n in range(4)]
    answered.set()
    await looking
    assert len(posted) == 4


async def test_thousands_of_pods_are_created_in_parts_and_each_manifest_when_it_is_posted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unposted, most = 0, 0

    def built(self: PodBuilder, ordinal: int) -> Any:
        nonlocal unposted, most
        unposted += 1
        most = max(most, unposted)
        return build(self, ordinal)

    def posted(_: str) -> None:
        nonlocal unposted
        unposted -= 1

    build = PodBuilder.build
    monkeypatch.setattr(PodBuilder, "build", built)
    bench.kube.before_create = posted
    bench.job(version="8", nodes=1000)
    begun = len(bench.kube.requests)
    await bench.look(Plan(actions=pods(1000, nodes=1000)))
    assert 500 <= len(bench.kube.requests) - begun <= 600
    assert most <= 32
    assert bench.looks_again()


def shown(bench: Bench, count: int) -> tuple[DeletePod, ...]:
    """Pods that exist, and the deletions of all of them."""
    found = [pod_of(f"digits-a0-{ordinal:04d}", owner="job-uid") for ordinal in range(count)]
    for pod in found:
        bench.caches.pods.seen(pod)
    return tuple(DeletePod(pod.name, pod.uid) for pod in found)


def left(bench: Bench) -> tuple[DeletePod, ...]:
    """What a plan then asks for: the pods that still exist."""
    return tuple(DeletePod(pod.name, pod.uid) for pod in bench.caches.pods)


async def test_thousands_of_pods_are_deleted_in_parts_and_others_have_their_turn_in_between(bench: Bench) -> None:
    shown(bench, 1_200)
    looks = []
    for _ in range(3):
        looks.append(await bench.look(Plan(actions=(*left(bench), *pods(1)))))
        assert bench.looks_again()
    assert [len(look) for look in looks] == [MOST_PODS, MOST_PODS, 1_200 - 2 * MOST_PODS + 1]
    assert looks[-1][-1] == "create pods digits-a0-0", "what is created comes after the last deletion"


async def test_members_hear_in_parts_of_a_change_before_others_are_asked_to_leave(bench: Bench) -> None:
    deletions = shown(bench, 1_000)
    membership = Membership(attempt=0, generation=1, nodes=600)
    heard = [AnnounceMembership(each.name, each.uid, membership) for each in deletions[:600]]
    bench.kube.requests.clear()
    await bench.look(Plan(actions=(*heard, *deletions[600:])))
    assert [request.split()[0] for request in bench.kube.requests] == ["patch"] * MOST_PODS
    assert bench.looks_again()


async def test_strays_that_are_asked_for_once_are_all_looked_for_and_each_of_them_once(bench: Bench) -> None:
    strays = tuple(DeleteStray(f"stray-{number:04d}") for number in range(1_200))
    requests = await bench.look(Plan(actions=strays))
    assert len(requests) == MOST_PODS
    while bench.looks_again():
        requests += await bench.look(Plan())
    assert requests == [f"find pods {stray.name}" for stray in strays]


async def test_strays_that_are_asked_for_until_the_first_pod_is_there_are_looked_for_once(bench: Bench) -> None:
    strays = tuple(DeleteStray(f"stray-{number:04d}") for number in range(1_200))
    requests: list[str] = []
    for _ in range(3):
        requests += await bench.look(Plan(actions=(*strays, *pods(1))))
        assert bench.looks_again()
    assert requests == [*(f"find pods {stray.name}" for stray in strays), "create pods digits-a0-0"]


async def test_a_stray_that_may_not_be_deleted_keeps_nothing_else_waiting(bench: Bench) -> None:
    bench.kube.objects["find pods stray"] = manifest("stray", uid="p", labels={})
    bench.kube.failures["delete pods stray p"] = Forbidden("a policy")
    await bench.look(Plan(actions=(DeleteStray("stray"),)))
    assert await bench.look(Plan(actions=pods(1))) == ["create pods digits-a0-0"]


async def test_a_stray_is_looked_for_again_where_there_was_no_answer(bench: Bench) -> None:
    bench.kube.objects["find pods stray"] = manifest("stray", uid="p", labels={})
    bench.kube.failures["delete pods stray p"] = Unavailable("busy")
    await bench.look(Plan(actions=(DeleteStray("stray"),)))
    bench.kube.failures.clear()
    assert await bench.look(Plan()) == ["find pods stray", "delete pods stray p"]


async def test_an_api_server_that_is_away_is_not_asked_for_each_of_thousands_of_pods(bench: Bench) -> None:
    deletions = shown(bench, 1_000)
    bench.kube.failures |= {f"delete pods {each.name} {each.uid}": Unavailable("busy") for each in deletions}
    assert len(await bench.look(Plan(actions=deletions))) <= LARGEST_WINDOW


async def test_pods_that_may_not_be_deleted_keep_no_others_from_it(bench: Bench) -> None:
    deletions = shown(bench, 1_200)
    refused = {f"delete pods {each.name} {each.uid}": Forbidden("a policy") for each in deletions[:600]}
    bench.kube.failures |= refused
    for _ in range(4):
        await bench.look(Plan(actions=left(bench)))
    assert len(left(bench)) == len(refused)


@pytest.mark.parametrize(
    "found",
    [
        {**POLICY, "spec": {**POLICY["spec"], "ingress": [{}]}},
        {**POLICY, "spec": {**POLICY["spec"], "podSelector": {"matchLabels": {"never": "there"}}}},
        {**POLICY, "metadata": {**POLICY["metadata"], "labels": {"team": "ml"}}},
    ],
)
async def test_a_policy_of_the_jobs_own_that_is_not_as_it_should_be_is_put_right_and_the_pods_follow(
    bench: Bench, found: dict[str, Any]
) -> None:
    bench.kube.failures["create networkpolicies digits"] = AlreadyExists("there")
    bench.kube.objects["find networkpolicies digits"] = {
        **found,
        "metadata": {**found["metadata"], "uid": "p", "annotations": {"kept": "yes"}},
    }
    replaced: list[dict[str, Any]] = []
    bench.kube.mutate = lambda raw: replaced.append(raw) or raw
    requests = await bench.look(Plan(actions=(Create(POLICY), *pods(1))))
    assert requests == [
        "create networkpolicies digits",
        "find networkpolicies digits",
        "replace networkpolicies digits at 101",
        "create pods digits-a0-0",
    ]
    put = replaced[1]
    assert put["spec"] == POLICY["spec"]
    assert POLICY["metadata"]["labels"].items() <= put["metadata"]["labels"].items()
    assert put["metadata"]["annotations"] == {"kept": "yes"}
    assert put["metadata"]["labels"].get("team") == found["metadata"]["labels"].get("team")
    await bench.look()
    policy = bench.observed[-1].network_policy
    assert policy is not None
    assert (policy.uid, policy.content) == ("p", content_of(POLICY["spec"]))


async def test_a_policy_that_says_the_same_is_not_asked_for(bench: Bench) -> None:
    assert await bench.look(Plan(actions=(Create(POLICY),))) == ["create networkpolicies digits"]
    assert await bench.look(Plan(actions=(Create(POLICY),))) == []


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_policy_that_a_webhook_changes_stops_the_pods(bench: Bench, *, replaced: bool) -> None:
    if replaced:
        bench.kube.failures["create networkpolicies digits"] = AlreadyExists("there")
        bench.kube.objects["find networkpolicies digits"] = manifest("digits", "NetworkPolicy", uid="p")
    bench.kube.mutate = lambda raw: {**raw, "spec": {**raw.get("spec", {}), "ingress": [{}]}}
    await bench.look(Plan(actions=(Create(POLICY), *pods(1))))
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.ALTERED
    assert rejection.message == "an admission webhook or policy has changed spec.ingress"
    assert not bench.observed[-1].pods


async def test_a_policy_that_another_owner_has_is_left_as_it_is(bench: Bench) -> None:
    bench.kube.failures["create networkpolicies digits"] = AlreadyExists("there")
    bench.kube.objects["find networkpolicies digits"] = {**POLICY, "metadata": {"name": "digits", "uid": "p"}}
    assert await bench.look(Plan(actions=(Create(POLICY), *pods(1)))) == [
        "create networkpolicies digits",
        "find networkpolicies digits",
    ]
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.NAME_TAKEN


@pytest.mark.parametrize("failure", [Conflict("changed"), NotFound("gone")])
async def test_a_policy_that_changes_at_the_same_moment_is_looked_at_again(bench: Bench, failure: ApiError) -> None:
    bench.kube.failures["create networkpolicies digits"] = AlreadyExists("there")
    bench.kube.objects["find networkpolicies digits"] = manifest("digits", "NetworkPolicy", uid="p")
    bench.kube.failures["replace networkpolicies digits at 101"] = failure
    await bench.look(Plan(actions=(Create(POLICY), *pods(1))))
    await bench.look()
    assert not bench.observed[-1].rejections
    assert not bench.observed[-1].pods
    assert bench.delays
