"""spec.elastic.rejoinSeconds."""

import json
from dataclasses import replace

import pytest
from world import World, running_world, words

from ddpjob_core.api import Phase
from ddpjob_core.api.membership import membership_text, parse_membership
from ddpjob_core.api.names import PodIdentity, is_host_name, parse_pod_name, pod_name
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Member, Membership, Progress
from ddpjob_core.children.actions import AnnounceMembership, CreatePod, DeletePod, DeleteStray
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import Waiting
from ddpjob_core.wire.progress import ProgressReport

ELASTIC = {"maxNodes": 3}


def report(world: World, step: int, rejoins: int | None) -> None:
    world.progress = ProgressReport(status_of(world).attempt, Progress(step=step, rejoins=rejoins), "0.5")
    world.advance(6)
    world.settle()


def ready(nodes: int = 3, rejoins: int | None = 0, elastic: dict[str, int] | None = None, **fields: object) -> World:
    """A job whose ranks make steps, and have said whether they can go on without a node."""
    world = running_world(nodes=nodes, elastic={**ELASTIC, **(elastic or {})}, **fields)
    report(world, 40, rejoins)
    world.requests.clear()
    return world


def status_of(world: World) -> DDPJobStatus:
    assert world.status is not None
    return world.status


def membership(world: World) -> Membership:
    found = status_of(world).membership
    assert found is not None
    return found


def counts(world: World) -> tuple[int, int, int]:
    status = status_of(world)
    return status.attempt, status.restarts.counted, status.restarts.ignored


def known(world: World, pod: str) -> object:
    return json.loads(world.pods[pod].membership or "null")


def told(world: World, kind: str) -> list[str]:
    return [event.message for event in world.events if event.reason == kind]


def test_a_node_that_is_gone_comes_back_in_another_pod_and_the_others_hear_of_it() -> None:
    world = ready()
    world.remove("digits-a0-1")
    plan = world.reconcile()
    # The status first, with all that it takes to go on from there.
    assert plan.status is not None
    assert (counts(world), membership(world).generation) == ((0, 1, 0), 1)
    world.settle()
    created = [each for each in world.requests if isinstance(each, CreatePod)]
    assert [each.name for each in created] == ["digits-a0-1-1"]
    assert {each.name for each in world.requests if isinstance(each, AnnounceMembership)} == {
        "digits-a0-0",
        "digits-a0-2",
    }
    expected = {"generation": 1, "nodes": 3, "formed": 0, "members": {"1": 1}}
    assert [known(world, name) for name in ("digits-a0-0", "digits-a0-1-1", "digits-a0-2")] == [expected] * 3
    assert status_of(world).phase is Phase.RESTARTING
    assert status_of(world).summary.nodes == "2/3"
    world.run("digits-a0-1-1")
    world.advance(6)
    world.settle()
    assert (status_of(world).phase, status_of(world).state) == (Phase.RUNNING, "Running,Rejoining")
    report(world, 41, 1)
    assert membership(world).rejoining is None
    assert status_of(world).state is None
    assert counts(world) == (0, 1, 0)
    assert (
        "another pod takes its place, and the other nodes go on with it (restart 1 of 3)" in told(world, "NodeLost")[0]
    )
    assert told(world, "NodeRejoined") == ["the ranks go on with the pods that took the places of lost ones"]
    assert not told(world, "Restarting")
    world.requests.clear()
    world.advance(600)
    world.settle()
    assert world.requests == []


def test_a_pod_that_has_only_lost_its_label_is_deleted() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    assert [each.name for each in world.requests if isinstance(each, DeleteStray)] == ["digits-a0-1"]


def test_a_pod_that_is_deleted_has_another_one_at_once_but_the_others_go_on_when_it_has_saved() -> None:
    world = ready()
    world.delete_pod("digits-a0-2")
    world.settle()
    assert "digits-a0-2-1" in world.live()
    assert "AnnounceMembership" not in words(world.requests)
    condition = status_of(world).condition(ConditionType.RESIZING)
    assert condition is not None
    assert "digits-a0-2 is still stopping" in condition.message
    world.end("digits-a0-2", 143, json.dumps({"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM"}))
    world.settle()
    assert len([each for each in world.requests if isinstance(each, AnnounceMembership)]) == 2


def test_a_pod_that_cannot_say_that_it_has_stopped_is_not_waited_for_forever() -> None:
    world = ready(elastic={"rejoinSeconds": 600})
    world.delete_pod("digits-a0-2")
    world.settle()
    world.advance(200)
    world.settle()
    assert "AnnounceMembership" in words(world.requests)


def test_a_node_that_does_not_answer_is_replaced_and_its_pod_deleted() -> None:
    world = ready()
    world.show(replace(world.pods["digits-a0-1"], node_lost=True))
    world.settle()
    assert counts(world) == (0, 1, 0)
    assert "digits-a0-1-1" in world.live()
    assert [each.name for each in world.requests if isinstance(each, DeletePod)] == ["digits-a0-1"]
    # It answers again, and is on its way out.
    world.show(replace(world.pods["digits-a0-1"], node_lost=False))
    world.run("digits-a0-1-1")
    report(world, 41, 1)
    assert membership(world).rejoining is None
    assert counts(world) == (0, 1, 0)


def test_an_eviction_is_not_counted() -> None:
    world = ready(restart={"maxRestarts": 0})
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], disruption="EvictionByEvictionAPI")
    world.delete_pod("digits-a0-1")
    world.settle()
    assert counts(world) == (0, 0, 1)
    assert "(not counted)" in told(world, "NodeLost")[0]


@pytest.mark.parametrize(
    "message",
    ["", json.dumps({"exitCode": 137, "failures": [{"signal": "SIGKILL", "oom": True, "message": "the launcher"}]})],
)
def test_a_pod_that_runs_out_of_memory_as_a_whole_is_a_lost_one(message: str) -> None:
    world = ready()
    world.end("digits-a0-1", 137, message or "Killed", reason="OOMKilled")
    world.settle()
    assert (counts(world), status_of(world).restarts.last_reason) == ((0, 1, 0), "OOMKilled")
    assert "digits-a0-1-1" in world.live()


@pytest.mark.parametrize(
    "why",
    ["node 0", "no steps", "cannot", "older steps", "off", "rank", "finished", "rule", "budget", "limit"],
)
def test_all_nodes_start_again_where_the_others_cannot_go_on(why: str) -> None:
    restart: dict[str, object] = {"maxRestarts": 0 if why == "budget" else 3}
    if why == "rule":
        restart["rules"] = [{"action": "Fail", "reasons": ["PodMissing"]}]
    rejoins = {"cannot": None, "no steps": None, "older steps": 7}.get(why, 0)
    world = ready(rejoins=rejoins, restart=restart, elastic={"rejoinSeconds": 0} if why == "off" else None)
    if why == "no steps":
        world.progress = None
    if why == "limit":
        status = status_of(world)
        marks = {"without_progress": 2, "last_furthest_step": 40, "furthest_step": 40}
        world.status = status.model_copy(update={"restarts": status.restarts.model_copy(update=marks)})
    if why == "rank":
        world.end("digits-a0-1", 1, json.dumps({"exitCode": 1, "failures": [{"rank": 1, "exitCode": 1}]}))
    else:
        world.remove(f"digits-a0-{0 if why == 'node 0' else 1}")
    if why == "finished":
        world.end("digits-a0-2", 0)
    for _ in range(8):
        world.kubelet_removes_deleted_pods()
        world.advance(6)
        world.settle()
    assert "digits-a0-1-1" not in world.creations
    status = status_of(world)
    if why in ("rule", "budget", "limit"):
        assert status.holds(ConditionType.FAILED)
    else:
        assert counts(world) == (1, 1, 0)
    assert membership(world).members is None


def test_a_name_that_would_be_too_long_starts_all_nodes_again() -> None:
    world = ready()
    wide = world.spec.model_copy(update={"elastic": world.spec.elastic})
    assert is_host_name(pod_name("n" * 52, 0, 1, wide.most_nodes, 99999))
    assert not is_host_name(pod_name("n" * 52, 9999, 1, 10_000, 1))


def test_the_pod_that_does_not_come_in_time_starts_all_nodes_again_and_counts_once() -> None:
    world = ready(elastic={"rejoinSeconds": 20})
    world.remove("digits-a0-1")
    world.settle()
    world.advance(19)
    world.settle()
    assert counts(world) == (0, 1, 0)
    world.advance(1)
    world.settle()
    assert counts(world) == (1, 1, 0)
    (message,) = told(world, "Restarting")
    assert (
        "the ranks did not go on within spec.elastic.rejoinSeconds (20 s); attempt 1 starts (counted already)"
        in message
    )
    world.kubelet_removes_deleted_pods()
    world.advance(6)
    world.settle()
    assert sorted(world.live()) == ["digits-a1-0", "digits-a1-1", "digits-a1-2"]
    assert not told(world, "NodeRejoined")
    assert (membership(world).members, membership(world).formed, membership(world).rejoining) == (None, None, None)


def no_room(world: World, name: str) -> None:
    pod = world.pods[name]
    world.show(replace(pod, scheduled=False, obstacle=Waiting("Unschedulable", "0/3 nodes are available")))


def test_without_room_for_another_pod_the_nodes_that_are_left_go_on_and_the_lost_one_joins_when_there_is() -> None:
    world = ready(elastic={"rejoinSeconds": 20})
    world.remove("digits-a0-2")
    world.settle()
    no_room(world, "digits-a0-2-1")
    world.advance(19)
    world.settle()
    assert membership(world).rejoining is not None
    world.requests.clear()
    world.advance(1)
    world.settle()
    found = membership(world)
    assert (counts(world), found.nodes, found.generation, found.formed, found.rejoining) == (
        (0, 1, 0),
        2,
        2,
        None,
        None,
    )
    assert {each.name for each in world.requests if isinstance(each, AnnounceMembership)} == {
        "digits-a0-0",
        "digits-a0-1",
        "digits-a0-2-1",
    }
    assert "DeletePod" not in words(world.requests)
    failure = status_of(world).failure
    assert failure is not None
    assert "no room for another pod: the 2 nodes that are left go on from the last checkpoint" in failure.message
    assert not told(world, "NodeRejoined")
    assert not told(world, "Restarting")
    assert status_of(world).summary.nodes == "2/3"
    report(world, 60, 2)
    world.run("digits-a0-2-1")
    world.advance(6)
    world.settle()
    assert (membership(world).nodes, counts(world)) == (3, (0, 1, 0))


@pytest.mark.parametrize("why", ["in the middle", "fewer than minNodes", "slow to start", "one of two has room"])
def test_in_other_cases_all_nodes_start_again_when_no_pod_comes(why: str) -> None:
    least = 3 if why == "fewer than minNodes" else 1
    world = ready(elastic={"rejoinSeconds": 20, "minNodes": least})
    lost = {"in the middle": ["1"], "one of two has room": ["1", "2"]}.get(why, ["2"])
    for ordinal in lost:
        world.remove(f"digits-a0-{ordinal}")
    world.settle()
    for ordinal in lost if why != "slow to start" else []:
        no_room(world, f"digits-a0-{ordinal}-1")
    if why == "one of two has room":
        world.run("digits-a0-2-1")
    world.advance(20)
    world.settle()
    assert counts(world) == (1, 1, 0)


def test_a_quota_that_refuses_the_pod_lets_the_nodes_that_are_left_go_on() -> None:
    world = ready(elastic={"rejoinSeconds": 20})
    world.quota_refuses = frozenset({2})
    world.remove("digits-a0-2")
    for _ in range(5):
        world.reconcile()
        world.advance(6)
    assert (counts(world), membership(world).nodes) == ((0, 1, 0), 2)


@pytest.mark.parametrize("how", ["gone", "failed", "node 0"])
def test_a_second_failure_while_a_node_is_away_starts_all_nodes_again_and_counts_once(how: str) -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    world.run("digits-a0-1-1")
    world.settle()
    if how == "gone":
        # The one that has come in its place.
        world.remove("digits-a0-1-1")
    elif how == "failed":
        world.end("digits-a0-2", 1, json.dumps({"exitCode": 1, "generation": 1}))
    else:
        world.end("digits-a0-0", 1, json.dumps({"exitCode": 1, "failures": [{"message": "connection lost: x"}]}))
    world.settle()
    assert counts(world) == (1, 1, 0)
    assert len(told(world, "Restarting")) == 1


def test_a_rule_that_fails_the_job_holds_while_a_node_is_away() -> None:
    world = ready(restart={"rules": [{"action": "Fail", "exitCodes": [42]}]})
    world.remove("digits-a0-1")
    world.settle()
    world.end(
        "digits-a0-2", 42, json.dumps({"exitCode": 42, "generation": 1, "failures": [{"rank": 2, "exitCode": 42}]})
    )
    world.settle()
    world.advance(120)
    world.settle()
    status = status_of(world)
    assert (status.phase, status.attempt) == (Phase.FAILED, 0)
    assert status.failure is not None
    assert (status.failure.pod, status.failure.exit_code) == ("digits-a0-2", 42)


def test_nodes_that_are_lost_together_or_soon_after_each_other_count_once() -> None:
    world = ready(nodes=3, elastic={"maxNodes": 4})
    world.remove("digits-a0-1")
    world.settle()
    world.remove("digits-a0-2")
    world.settle()
    assert counts(world) == (0, 1, 0)
    assert membership_text(membership(world)) == ('{"generation":2,"nodes":3,"formed":0,"members":{"1":1,"2":2}}')
    for name in ("digits-a0-1-1", "digits-a0-2-2"):
        world.run(name)
    report(world, 41, 1)
    # These steps, of the generation in between, are none of all nodes.
    assert membership(world).rejoining is not None
    report(world, 42, 2)
    assert membership(world).rejoining is None


def test_a_node_that_is_lost_again_later_has_another_pod_and_counts_again() -> None:
    world = ready()
    for generation in (1, 2):
        world.remove("digits-a0-1" + (f"-{generation - 1}" if generation > 1 else ""))
        world.settle()
        world.run(f"digits-a0-1-{generation}")
        report(world, 40 + generation, generation)
    assert counts(world) == (0, 2, 0)
    assert membership(world).members == [Member(ordinal=1, generation=2)]


def test_evictions_that_follow_each_other_quickly_get_the_brake_of_restarts() -> None:
    world = ready()
    for name in ("digits-a0-1", "digits-a0-1-1"):
        world.pods[name] = replace(world.pods[name], disruption="EvictionByEvictionAPI")
        world.delete_pod(name)
        world.remove(name)
        world.settle()
        if name == "digits-a0-1":
            world.run("digits-a0-1-1")
            report(world, 41, 1)
    assert counts(world) == (1, 0, 2)


def test_an_eviction_soon_after_a_loss_that_counted_does_not() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    world.run("digits-a0-1-1")
    report(world, 41, 1)
    world.pods["digits-a0-1-1"] = replace(world.pods["digits-a0-1-1"], disruption="EvictionByEvictionAPI")
    world.delete_pod("digits-a0-1-1")
    world.settle()
    assert counts(world) == (0, 1, 1)


def test_ranks_that_stay_for_a_pod_that_does_not_come_are_not_waited_for() -> None:
    world = ready(restart={"maxRestarts": 1})
    world.delete_pod("digits-a0-0")
    world.end("digits-a0-0", 143, json.dumps({"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM"}))
    world.settle()
    # Ranks that end together with those of node 0 would have been given some seconds to do so.
    assert counts(world) == (1, 1, 0)


def test_a_size_that_is_asked_for_meanwhile_is_reached_after_that() -> None:
    world = ready(nodes=3)
    world.remove("digits-a0-1")
    world.settle()
    world.spec = world.spec.model_copy(update={"nodes": 2})
    world.settle()
    assert membership(world).nodes == 3
    world.run("digits-a0-1-1")
    report(world, 41, 1)
    found = membership(world)
    assert (found.nodes, found.generation, found.formed) == (2, 2, None)
    # The pods keep their names.
    assert known(world, "digits-a0-1-1") == {"generation": 2, "nodes": 2, "members": {"1": 1}}


def test_a_job_that_is_suspended_meanwhile_stops() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert status_of(world).holds(ConditionType.SUSPENDED)
    assert not world.live()


def test_a_pod_that_ends_well_in_the_old_generation_has_not_finished() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    world.run("digits-a0-1-1")
    world.end("digits-a0-0", 0, json.dumps({"exitCode": 0, "generation": 0}))
    world.end("digits-a0-2", 0, json.dumps({"exitCode": 0, "generation": 0}))
    world.settle()
    assert not status_of(world).holds(ConditionType.SUCCEEDED)
    assert counts(world) == (1, 1, 0)


def test_an_operator_that_dies_at_any_moment_counts_once_and_creates_one_pod() -> None:
    for crash in range(6):
        world = ready()
        world.remove("digits-a0-1")
        world.reconcile(crash_after=crash)
        world.settle()
        for _ in range(4):
            world.reconcile(crash_after=crash % 3)
        world.settle()
        assert counts(world) == (0, 1, 0), crash
        assert [name for name in world.creations if name.startswith("digits-a0-1-")] == ["digits-a0-1-1"]


def test_a_pod_knows_by_its_name_and_its_environment_which_one_of_its_node_it_is() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    first, later = (build_pod(world.job(), world.spec, 0, ordinal, membership=membership(world)) for ordinal in (0, 1))
    assert later["metadata"]["name"] == later["spec"]["hostname"] == "digits-a0-1-1"
    environments = [
        {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]} for pod in (first, later)
    ]
    assert "DDPJOB_MEMBER" not in environments[0]
    assert environments[1]["DDPJOB_MEMBER"] == "1"
    assert environments[1]["PET_LOCAL_ADDR"] == "digits-a0-1-1.digits"
    # Node 0 is never another pod.
    assert environments[1]["DDPJOB_RENDEZVOUS_HOST"] == "digits-a0-0.digits"


def test_names_are_read_as_they_are_made_and_keep_the_order_of_the_nodes() -> None:
    assert parse_pod_name("digits", pod_name("digits", 3, 7, 12, 41)) == PodIdentity(3, 7, 41)
    names = [pod_name("digits", 0, ordinal, 12, member) for ordinal in range(12) for member in (0, 5)]
    # torch sorts nodes by the addresses, which go on with the service's name.
    addresses = [f"{name}.digits" for name in names]
    ordinals = [parse_pod_name("digits", each.split(".")[0]) for each in sorted(addresses)]
    assert [each.ordinal for each in ordinals if each is not None] == [index // 2 for index in range(24)]


def test_a_membership_is_read_as_it_is_written() -> None:
    whole = Membership(attempt=2, generation=9, nodes=3, formed=4, members=[Member(ordinal=1, generation=9)])
    assert parse_membership(membership_text(whole), 2, 3) == whole


@pytest.mark.parametrize(
    "changed",
    [{"formed": 9}, {"formed": -1}, {"formed": "0"}, {"members": {"3": 1}}, {"members": {"1": 10}}, {"members": [1]}],
)
def test_a_text_that_cannot_be_meant_is_not_read(changed: dict[str, object]) -> None:
    text = json.dumps({"generation": 9, "nodes": 3, "formed": 4, "members": {"1": 9}, **changed})
    assert parse_membership(text, 2, 3) is None
