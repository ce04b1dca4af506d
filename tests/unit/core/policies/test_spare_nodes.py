"""spec.elastic.spareNodes."""

import json
from dataclasses import replace

import pytest
from world import World, running_world, words

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.membership import membership_text, parse_membership, spares_of
from ddpjob_core.api.names import SpareIdentity, attempt_of, parse_pod_name, parse_spare_pod_name, spare_pod_name
from ddpjob_core.api.spec import Elastic
from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus, Member, Membership, Progress, Replaced
from ddpjob_core.children.actions import AnnounceMembership, CreatePod, DeletePod, DeleteStray
from ddpjob_core.observations.observed import Rejection, RejectionKind, Waiting
from ddpjob_core.wire.progress import ProgressReport

ELASTIC = {"maxNodes": 3}


def status_of(world: World) -> DDPJobStatus:
    assert world.status is not None
    return world.status


def membership(world: World) -> Membership:
    found = status_of(world).membership
    assert found is not None
    return found


def waiting(world: World) -> list[int]:
    spares = membership(world).spares
    return [] if spares is None else [each.number for each in spares.waiting or ()]


def counts(world: World) -> tuple[int, int, int]:
    status = status_of(world)
    return status.attempt, status.restarts.counted, status.restarts.ignored


def condition(world: World) -> Condition:
    found = status_of(world).condition(ConditionType.SPARE_NODES_READY)
    assert found is not None
    return found


def report(world: World, step: int, rejoins: int | None) -> None:
    world.progress = ProgressReport(status_of(world).attempt, Progress(step=step, rejoins=rejoins), "0.5")
    later(world, 6)


def later(world: World, seconds: float) -> None:
    world.advance(seconds)
    world.settle()


def ask(world: World, spares: int) -> None:
    assert world.spec.elastic is not None
    elastic = world.spec.elastic.model_copy(update={"spare_nodes": spares})
    world.spec = world.spec.model_copy(update={"elastic": elastic})
    later(world, 6)


def no_room(world: World, name: str) -> None:
    pod = world.pods[name]
    world.show(replace(pod, scheduled=False, obstacle=Waiting("Unschedulable", "0/3 nodes are available")))


def ready(nodes: int = 3, spares: int = 1, elastic: dict[str, int] | None = None, **fields: object) -> World:
    """A job that makes steps, whose spares run."""
    world = running_world(nodes=nodes, elastic={**ELASTIC, "spareNodes": spares, **(elastic or {})}, **fields)
    report(world, 40, 0)
    for number in waiting(world):
        world.run(f"digits-a0-s{number}")
    later(world, 6)
    world.requests.clear()
    return world


def test_spares_are_created_once_all_nodes_run_and_not_before() -> None:
    world = World(spec=running_world(nodes=2, elastic={**ELASTIC, "spareNodes": 2}).spec)
    world.settle()
    assert world.live() == ["digits-a0-0", "digits-a0-1"]
    world.run("digits-a0-0")
    later(world, 6)
    assert waiting(world) == []
    assert condition(world).reason == "NodesFirst"
    world.run("digits-a0-1")
    later(world, 6)
    assert world.live() == ["digits-a0-0", "digits-a0-1", "digits-a0-s1", "digits-a0-s2"]
    assert (waiting(world), condition(world).status) == ([1, 2], "False")
    world.run("digits-a0-s1")
    world.run("digits-a0-s2")
    later(world, 6)
    assert (condition(world).status, condition(world).message) == ("True", "2 of 2 spare nodes are ready")
    world.requests.clear()
    later(world, 600)
    assert world.requests == []


def test_a_spare_is_written_down_before_its_pod_is_created() -> None:
    world = running_world(nodes=2, elastic=ELASTIC)
    world.spec = world.spec.model_copy(update={"elastic": Elastic(max_nodes=3, spare_nodes=1)})
    world.reconcile(crash_after=1)
    assert (waiting(world), "digits-a0-s1" in world.pods) == ([1], False)
    world.settle()
    assert (waiting(world), "digits-a0-s1" in world.pods) == ([1], True)


def test_no_count_of_the_job_has_spares_in_it() -> None:
    world = ready()
    status = status_of(world)
    assert status.nodes is not None
    assert (status.nodes.desired, status.nodes.ready, status.replicas) == (3, 3, 3)
    assert status.summary.nodes == "3/3"


def test_a_ready_spare_is_named_in_the_write_that_counts_the_loss_and_another_is_created_afterwards() -> None:
    world = ready()
    world.remove("digits-a0-1")
    plan = world.reconcile()
    assert plan.status is not None
    assert plan.status.membership is not None
    assert plan.status.membership.members == [Member(ordinal=1, generation=1, spare=1)]
    assert plan.status.membership.rejoining is not None
    assert plan.status.membership.rejoining.created
    assert (counts(world), waiting(world)) == ((0, 1, 0), [])
    world.settle()
    told = {each.name: each.ordinal for each in world.requests if isinstance(each, AnnounceMembership)}
    assert told == {"digits-a0-0": None, "digits-a0-2": None, "digits-a0-s1": 1}
    known = {"generation": 1, "nodes": 3, "formed": 0, "members": {"1": 1}, "spares": {"1": 1}}
    assert json.loads(world.pods["digits-a0-s1"].membership or "") == known
    assert "Create Pod" not in words(world.requests)
    report(world, 41, 1)
    assert membership(world).rejoining is None
    later(world, 6)
    assert waiting(world) == [2]
    assert "digits-a0-s2" in world.live()
    assert counts(world) == (0, 1, 0)


def test_the_spare_hears_of_its_place_only_when_the_lost_pod_has_saved() -> None:
    world = ready()
    world.delete_pod("digits-a0-1")
    world.settle()
    assert "AnnounceMembership" not in words(world.requests)
    world.end("digits-a0-1", 143, json.dumps({"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM"}))
    world.settle()
    assert "digits-a0-s1" in {each.name for each in world.requests if isinstance(each, AnnounceMembership)}


def test_two_lost_nodes_have_the_spare_that_is_ready_and_a_pod_that_is_created() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.remove("digits-a0-2")
    world.settle()
    assert counts(world) == (0, 1, 0)
    assert spares_of(membership(world)) == {1: 1}
    assert [each.name for each in world.requests if isinstance(each, CreatePod)] == ["digits-a0-2-1"]
    world.run("digits-a0-2-1")
    report(world, 41, 1)
    assert membership(world).rejoining is None


@pytest.mark.parametrize("how", ["pending", "node lost", "deleted", "failed"])
def test_a_spare_that_is_not_ready_is_not_named(how: str) -> None:
    world = ready()
    pod = world.pods["digits-a0-s1"]
    if how == "deleted":
        world.delete_pod("digits-a0-s1")
    elif how == "failed":
        world.end("digits-a0-s1", 1)
    else:
        away = {"node_lost": True} if how == "node lost" else {"phase": "Pending", "trainer": None}
        world.show(replace(pod, **away))
    world.remove("digits-a0-1")
    world.settle()
    assert spares_of(membership(world)) == {}
    assert "digits-a0-1-1" in world.live()


def test_a_named_spare_that_dies_before_it_trains_has_all_nodes_start_again_and_counts_once() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    world.remove("digits-a0-s1")
    world.settle()
    assert counts(world) == (1, 1, 0)
    world.kubelet_removes_deleted_pods()
    later(world, 60)
    assert [name for name in world.live() if "-a1-" in name] == ["digits-a1-0", "digits-a1-1", "digits-a1-2"]


def test_a_spare_that_has_become_a_node_is_lost_as_any_other_and_never_named_again() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    report(world, 41, 1)
    world.run("digits-a0-s2")
    later(world, 40)
    world.remove("digits-a0-s1")
    world.settle()
    assert membership(world).members == [Member(ordinal=1, generation=2, spare=2)]
    assert counts(world) == (0, 2, 0)


def test_spares_that_fail_are_replaced_ever_later_and_no_restart_is_counted() -> None:
    world = ready()
    seen = []
    for number in range(1, 5):
        world.run(f"digits-a0-s{number}")
        world.settle()
        world.end(f"digits-a0-s{number}", 1)
        begun = world.now
        later(world, 6)
        assert condition(world).reason == "Failed"
        while waiting(world) == [number]:
            later(world, 1)
        seen.append((world.now - begun).total_seconds())
    assert counts(world) == (0, 0, 0)
    assert seen == sorted(seen)
    assert seen[0] >= 10
    assert seen[-1] >= 40
    assert status_of(world).failure is None


def test_one_that_is_deleted_is_replaced_at_once_under_another_name_and_what_lost_its_label_is_deleted() -> None:
    world = ready()
    world.remove("digits-a0-s1")
    world.settle()
    assert waiting(world) == [2]
    assert [each.name for each in world.requests if isinstance(each, DeleteStray)] == ["digits-a0-s1"]


def test_the_training_does_not_notice_that_a_quota_has_no_room_for_spares() -> None:
    world = running_world(nodes=2, elastic=ELASTIC)
    world.no_spares = True
    report(world, 40, 0)
    world.spec = world.spec.model_copy(update={"elastic": Elastic(max_nodes=3, spare_nodes=1)})
    for _ in range(4):
        world.advance(6)
        world.reconcile()
    assert (condition(world).status, condition(world).reason) == ("False", "Forbidden")
    assert "exceeded quota" in condition(world).message
    scheduled = status_of(world).condition(ConditionType.PODS_SCHEDULED)
    assert scheduled is not None
    assert scheduled.status == "True"
    world.remove("digits-a0-1")
    world.settle()
    assert "digits-a0-1-1" in world.live()
    assert (counts(world), status_of(world).holds(ConditionType.FAILED)) == ((0, 1, 0), False)


def test_a_spare_without_a_node_makes_room_for_a_node_that_comes_back() -> None:
    world = running_world(nodes=2, elastic={**ELASTIC, "spareNodes": 1})
    report(world, 40, 0)
    no_room(world, "digits-a0-s1")
    later(world, 6)
    assert condition(world).reason == "NotReady"
    world.remove("digits-a0-1")
    world.settle()
    assert waiting(world) == []
    assert [each.name for each in world.requests if isinstance(each, DeletePod)] == ["digits-a0-s1"]


def test_a_spare_makes_room_for_a_node_that_is_to_join() -> None:
    world = ready(nodes=2)
    world.spec = world.spec.model_copy(update={"nodes": 3})
    later(world, 6)
    assert waiting(world) == [1]
    no_room(world, "digits-a0-2")
    later(world, 6)
    assert waiting(world) == []
    assert "digits-a0-s1" in {each.name for each in world.requests if isinstance(each, DeletePod)}


def test_the_number_of_spares_can_change_while_the_job_runs() -> None:
    world = ready(spares=0)
    ask(world, 1)
    world.run("digits-a0-s1")
    later(world, 6)
    assert condition(world).status == "True"
    ask(world, 0)
    assert waiting(world) == []
    world.kubelet_removes_deleted_pods()
    later(world, 6)
    assert "digits-a0-s1" not in world.pods
    assert condition(world).reason == "NotAskedFor"
    ask(world, 1)
    assert waiting(world) == [2]
    assert counts(world) == (0, 0, 0)
    assert membership(world).generation == 0


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_spares_go_when_the_job_finishes(policy: str) -> None:
    world = ready(cleanPodPolicy=policy)
    for ordinal in range(3):
        world.end(f"digits-a0-{ordinal}", 0)
    world.settle()
    assert status_of(world).holds(ConditionType.SUCCEEDED)
    world.kubelet_removes_deleted_pods()
    assert "digits-a0-s1" not in world.live()


def test_spares_go_with_a_suspension_and_with_the_attempt() -> None:
    world = ready()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    assert "digits-a0-s1" in {each.name for each in world.requests if isinstance(each, DeletePod)}
    world = ready()
    world.remove("digits-a0-0")
    world.settle()
    assert status_of(world).attempt == 1
    assert "digits-a0-s1" in {each.name for each in world.requests if isinstance(each, DeletePod)}
    world.kubelet_removes_deleted_pods()
    later(world, 60)
    world.run_all()
    later(world, 6)
    assert "digits-a1-s1" in world.live()


def test_a_node_that_was_a_spare_leaves_and_another_pod_comes_in_its_place() -> None:
    world = ready(nodes=2)
    world.remove("digits-a0-1")
    world.settle()
    report(world, 41, 1)
    world.run("digits-a0-s2")
    world.spec = world.spec.model_copy(update={"nodes": 1})
    later(world, 6)
    assert (membership(world).nodes, membership(world).generation) == (1, 2)
    assert "digits-a0-s1" in {each.name for each in world.requests if isinstance(each, DeletePod)}
    world.kubelet_removes_deleted_pods()
    world.spec = world.spec.model_copy(update={"nodes": 2})
    later(world, 6)
    assert "digits-a0-1-1" in world.live()
    world.run("digits-a0-1-1")
    later(world, 6)
    assert membership(world).members == [Member(ordinal=1, generation=1)]
    assert json.loads(world.pods["digits-a0-0"].membership or "")["members"] == {"1": 1}
    assert status_of(world).summary.nodes == "2/2"


def test_a_job_whose_text_refers_to_its_node_has_no_spares() -> None:
    trainer = {"image": "i", "script": "train.py", "args": ["--node", "$(DDPJOB_NODE_RANK)"]}
    world = running_world(nodes=2, elastic={**ELASTIC, "spareNodes": 1}, trainer=trainer)
    later(world, 6)
    assert waiting(world) == []
    assert (condition(world).reason, "$(DDPJOB_NODE_RANK)" in condition(world).message) == ("NodeReferred", True)


def test_an_erased_status_forgets_the_spares_but_not_who_was_named() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    report(world, 41, 1)
    world.run("digits-a0-s2")
    world.status = None
    world.crash()
    world.settle()
    assert spares_of(membership(world)) == {1: 1}
    # Nobody knows any longer what the other one was for.
    assert "digits-a0-s2" in {each.name for each in world.requests if isinstance(each, DeletePod)}
    later(world, 6)
    world.kubelet_removes_deleted_pods()
    later(world, 6)
    assert waiting(world) == [2]
    assert counts(world) == (0, 0, 0)


def test_a_crash_at_each_write_names_no_spare_twice_and_counts_once() -> None:
    for crash_after in range(8):
        world = ready(spares=2)
        world.remove("digits-a0-1")
        world.reconcile(crash_after=crash_after)
        world.settle()
        assert membership(world).members == [Member(ordinal=1, generation=1, spare=1)], crash_after
        report(world, 41, 1)
        later(world, 6)
        assert (counts(world), waiting(world)) == ((0, 1, 0), [2, 3]), crash_after


def test_a_definition_that_drops_who_was_named_costs_one_more_restart_and_no_more() -> None:
    world = ready()
    world.remove("digits-a0-1")
    world.settle()
    report(world, 41, 1)
    later(world, 40)
    old = membership(world).model_copy(update={"members": [Member(ordinal=1, generation=1)], "spares": None})
    world.status = status_of(world).model_copy(update={"membership": old})
    world.crash()
    world.settle()
    assert counts(world) == (0, 2, 0)
    assert "digits-a0-s1" in {each.name for each in world.requests if isinstance(each, DeletePod)}
    world.kubelet_removes_deleted_pods()
    later(world, 6)
    world.run_all()
    report(world, 42, 2)
    assert membership(world).rejoining is None
    assert counts(world) == (0, 2, 0)


@pytest.mark.parametrize("number", ["999999999", "2147483647", "9" * 40])
def test_a_pod_that_another_user_has_named_like_a_spare_is_deleted_and_spoils_no_number(number: str) -> None:
    world = ready()
    name = f"digits-a0-s{number}"
    world.show(replace(world.pods["digits-a0-s1"], name=name, uid="another"))
    world.remove("digits-a0-s1")
    world.settle()
    assert name in {each.name for each in world.requests if isinstance(each, DeletePod)}
    assert waiting(world) == [2]


def test_a_job_that_ends_at_the_moment_of_a_loss_names_nobody() -> None:
    world = ready()
    for ordinal in (0, 2):
        world.end(f"digits-a0-{ordinal}", 0)
    world.remove("digits-a0-1")
    world.settle()
    assert spares_of(membership(world)) == {}
    assert counts(world) == (1, 1, 0)


def test_the_name_of_a_spare_is_that_of_no_node() -> None:
    name = spare_pod_name("digits", 2, 17)
    assert parse_spare_pod_name("digits", name) == SpareIdentity(2, 17)
    assert parse_pod_name("digits", name) is None
    assert attempt_of("digits", name) == attempt_of("digits", "digits-a2-1-3") == 2
    for other in ("digits-a2-s0", "digits-a02-s1", "digits-a2-s1-1", "digit-a2-s1", "digits-a2-s", "digits-a2-17"):
        assert parse_spare_pod_name("digits", other) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"generation":1,"nodes":2,"members":{"1":1},"spares":{"0":1}}',
        '{"generation":1,"nodes":2,"members":{"1":1},"spares":{"1":0}}',
        '{"generation":1,"nodes":2,"members":{"1":1},"spares":{"1":"1"}}',
        '{"generation":1,"nodes":2,"members":{"1":1},"spares":{"1":[1]}}',
        '{"generation":1,"nodes":2,"members":{"1":1},"spares":[1]}',
        '{"generation":2,"nodes":3,"members":{"1":1,"2":2},"spares":{"1":1,"2":1}}',
    ],
)
def test_what_cannot_be_meant_is_not_read_from_a_pod(text: str) -> None:
    assert parse_membership(text, 0, 3) is None


def test_what_is_written_into_a_pod_is_read_again() -> None:
    members = [Member(ordinal=1, generation=2, spare=1), Member(ordinal=2, generation=1)]
    whole = Membership(attempt=0, generation=3, nodes=3, formed=0, members=members)
    assert parse_membership(membership_text(whole), 0, 3) == whole


def test_a_thousand_spares_are_refused() -> None:
    with pytest.raises(ValueError, match="spareNodes"):
        Elastic.model_validate({"maxNodes": 3, "spareNodes": 1000})


def created(world: World) -> list[str]:
    return [each.name for each in world.requests if isinstance(each, CreatePod)]


def test_a_refusal_of_what_is_no_longer_asked_for_creates_no_spares_again_and_again() -> None:
    world = ready(nodes=2)
    launcher = ObjectName("ConfigMap", "digits-launcher")
    world.rejections = (Rejection(RejectionKind.FORBIDDEN, launcher, "exceeded quota"),)
    for _ in range(20):
        later(world, 1)
    assert (waiting(world), created(world)) == ([1], [])


def test_a_node_that_is_to_join_and_is_refused_has_the_room_of_spares_until_it_is_not_asked_for_any_more() -> None:
    world = ready(nodes=2)
    world.spec = world.spec.model_copy(update={"nodes": 3})
    world.quota_refuses = frozenset({2})
    for _ in range(20):
        world.advance(1)
        world.reconcile()
    assert waiting(world) == []
    world.spec = world.spec.model_copy(update={"nodes": 2})
    for _ in range(20):
        later(world, 1)
    assert waiting(world) == [2]
    assert created(world).count("digits-a0-s2") == 1


@pytest.mark.parametrize(("longest", "most"), [(0, 13), (60, 8)])
def test_spares_that_are_deleted_again_and_again_are_created_ever_later(longest: int, most: int) -> None:
    world = ready(restart={"maxBackoffSeconds": longest})
    for _ in range(20):
        for number in waiting(world):
            if (name := f"digits-a0-s{number}") in world.pods:
                world.remove(name)
        later(world, 6)
    assert 3 <= len(created(world)) <= most


@pytest.mark.parametrize("how", ["drained", "lost"])
def test_a_spare_on_the_machine_that_its_node_was_lost_with_is_not_named(how: str) -> None:
    world = ready()
    for name in ("digits-a0-1", "digits-a0-s1"):
        world.show(replace(world.pods[name], node_name="machine"))
    gone = {"disruption": "EvictionByEvictionAPI"} if how == "drained" else {"node_lost": True}
    world.show(replace(world.pods["digits-a0-1"], **gone))
    if how == "drained":
        world.end("digits-a0-1", 143)
    world.settle()
    assert spares_of(membership(world)) == {}
    assert (status_of(world).attempt, "digits-a0-1-1" in world.live()) == (0, True)


def test_a_spare_gives_its_room_to_a_node_that_comes_back_and_finds_none() -> None:
    world = ready()
    world.show(replace(world.pods["digits-a0-s1"], phase="Pending", trainer=None))
    world.remove("digits-a0-1")
    world.settle()
    no_room(world, "digits-a0-1-1")
    later(world, 6)
    assert waiting(world) == []


def test_a_spare_that_was_to_go_when_the_job_finished_goes_under_any_policy() -> None:
    world = ready(cleanPodPolicy="None")
    assert world.spec.elastic is not None
    world.spec = world.spec.model_copy(update={"elastic": world.spec.elastic.model_copy(update={"spare_nodes": 0})})
    world.reconcile(crash_after=1)
    for ordinal in range(3):
        world.end(f"digits-a0-{ordinal}", 0)
    later(world, 6)
    assert status_of(world).holds(ConditionType.SUCCEEDED)
    world.kubelet_removes_deleted_pods()
    assert "digits-a0-s1" not in world.live()


def test_a_spare_keeps_away_from_the_machine_that_a_slow_rank_has_left() -> None:
    world = ready()
    replaced = Replaced(attempt=0, rank=2, node_name="slow", factor=2, what="Computing", time=world.now)
    world.status = status_of(world).model_copy(update={"replaced": replaced})
    ask(world, 2)
    (pod,) = [each for each in world.requests if isinstance(each, CreatePod)]
    assert "slow" in pod.lost_nodes
