"""spec.elastic."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from world import EXCEEDED_QUOTA, World, running_world, spec_of, training, words

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.api.membership import membership_text, parse_membership
from ddpjob_core.api.status import Condition, DDPJobStatus, Membership
from ddpjob_core.children.actions import AnnounceMembership, CreatePod, DeletePod, DeleteStray
from ddpjob_core.children.hashes import spec_hash
from ddpjob_core.decide import decide
from ddpjob_core.observations.membership import JOIN_TOGETHER
from ddpjob_core.observations.observed import InitFailure, Terminated, Waiting

ELASTIC = {"minNodes": 1, "maxNodes": 12}


def elastic(nodes: int = 2, **fields: object) -> World:
    return running_world(nodes=nodes, elastic=ELASTIC, **fields)


def scale(world: World, nodes: int) -> None:
    world.spec = world.spec.model_copy(update={"nodes": nodes})
    world.generation += 1
    world.requests.clear()


def status_of(world: World) -> DDPJobStatus:
    assert world.status is not None
    return world.status


def membership(world: World) -> tuple[int, int]:
    found = status_of(world).membership
    assert found is not None
    assert found.attempt == status_of(world).attempt
    return found.generation, found.nodes


def resizing(world: World) -> Condition:
    found = status_of(world).condition(ConditionType.RESIZING)
    assert found is not None
    return found


def announced(world: World, ordinal: int) -> object:
    pod = world.pods[f"digits-a{status_of(world).attempt}-{ordinal:02d}"]
    return json.loads(pod.membership or "null")


def test_the_membership_is_written_before_the_first_pod() -> None:
    world = World(spec=spec_of(elastic=ELASTIC))
    plan = world.reconcile()
    assert plan.actions == ()
    assert membership(world) == (0, 2)
    world.settle()
    assert sorted(world.pods) == ["digits-a0-00", "digits-a0-01"]
    assert announced(world, 1) == {"generation": 0, "nodes": 2}


def test_an_operator_that_has_not_created_the_launcher_creates_it_before_the_nodes_that_join() -> None:
    world = elastic()
    world.crash()
    scale(world, 4)
    world.requests.clear()
    world.settle()
    assert words(world.requests) == ["Create ConfigMap", "Create Pod", "Create Pod"]


def test_a_job_of_a_fixed_size_has_no_membership() -> None:
    world = running_world()
    assert status_of(world).membership is None
    assert status_of(world).condition(ConditionType.RESIZING) is None
    assert "membership" not in "".join(pod.membership or "" for pod in world.pods.values())


def test_nodes_that_were_asked_for_are_created_and_join_when_all_of_them_run() -> None:
    world = elastic()
    assert (resizing(world).status, resizing(world).reason) == ("False", "SizeReached")
    scale(world, 4)
    world.settle()
    assert [each.ordinal for each in world.requests if isinstance(each, CreatePod)] == [2, 3]
    assert membership(world) == (0, 2)
    assert (status_of(world).phase, status_of(world).state) == (Phase.RUNNING, "Running,Resizing")
    assert status_of(world).summary.nodes == "2/4"
    world.run("digits-a0-02")
    world.advance(6)
    world.settle()
    assert status_of(world).replicas == 4
    assert "1 is ready to join" in resizing(world).message
    assert membership(world) == (0, 2)
    world.run("digits-a0-03")
    world.settle()
    assert membership(world) == (1, 4)
    assert [announced(world, ordinal) for ordinal in range(4)] == [{"generation": 1, "nodes": 4}] * 4
    assert status_of(world).summary.nodes == "4/4"
    assert status_of(world).state is None
    assert [event.message for event in world.events if event.reason == "Resized"] == [
        "the training goes on with 4 nodes instead of 2"
    ]
    assert status_of(world).restarts.counted == status_of(world).restarts.ignored == status_of(world).attempt == 0


def test_nodes_that_run_do_not_wait_for_long_for_those_that_do_not() -> None:
    world = elastic()
    scale(world, 5)
    world.settle()
    world.run("digits-a0-02")
    world.run("digits-a0-04")
    world.settle()
    plan = decide(world.observe())
    assert plan.requeue_after is not None
    assert plan.requeue_after <= JOIN_TOGETHER
    world.advance(JOIN_TOGETHER.total_seconds())
    world.settle()
    # Ordinals are ranks: there is no gap in them.
    assert membership(world) == (1, 3)
    assert "digits-a0-03: waiting for a node" in resizing(world).message
    world.run("digits-a0-03")
    world.settle()
    assert membership(world) == (2, 5)


def test_nodes_that_are_not_asked_for_any_more_leave_and_may_save() -> None:
    world = elastic(4)
    scale(world, 1)
    plan = world.reconcile()
    # The node that stays hears of it before the others ask their ranks, and so its own, to stop.
    assert words(plan.actions) == ["AnnounceMembership"]
    assert resizing(world).message == "1 node trains together from now on; digits-a0-00 has not heard of it"
    plan = world.reconcile()
    # With their own grace period.
    assert [each.grace_seconds for each in plan.actions if isinstance(each, DeletePod)] == [None] * 3
    assert membership(world) == (1, 1)
    world.advance(6)
    world.settle()
    assert resizing(world).message == ("1 node trains; digits-a0-01, digits-a0-02, digits-a0-03 are stopping")
    world.kubelet_removes_deleted_pods()
    world.advance(6)
    world.settle()
    assert (resizing(world).status, resizing(world).message) == (
        "False",
        "1 node trains, as many as spec.nodes asks for",
    )
    assert status_of(world).summary.nodes == "1/1"
    assert status_of(world).failure is None


def test_a_size_that_is_asked_for_again_waits_for_the_pods_that_leave() -> None:
    world = elastic(3)
    scale(world, 2)
    world.settle()
    scale(world, 3)
    world.advance(6)
    world.settle()
    assert membership(world) == (1, 2)
    assert not [each for each in world.requests if isinstance(each, CreatePod)]
    assert "digits-a0-02 is being deleted, and is created again then" in resizing(world).message
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.run("digits-a0-02")
    world.settle()
    assert membership(world) == (2, 3)


def test_a_node_that_has_left_by_itself_is_replaced_when_it_is_asked_for_again() -> None:
    world = elastic(3)
    scale(world, 2)
    world.reconcile()
    world.end("digits-a0-02", 143, json.dumps({"exitCode": 143, "stopped": True}))
    scale(world, 3)
    world.settle()
    assert "DeletePod" in words(world.requests)
    world.settle()
    world.run("digits-a0-02")
    world.settle()
    assert membership(world)[1] == 3


def test_a_node_that_fails_before_it_joins_is_kept_and_named() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    world.end("digits-a0-02", 1, json.dumps({"exitCode": 1}))
    again = world.now + timedelta(seconds=10)
    world.advance(6)
    world.settle()
    assert resizing(world).message == (
        "2 nodes train of the 3 that spec.nodes asks for; digits-a0-02 has ended before it could join: "
        f"its log says why; it is created again at {again:%H:%M:%S} UTC"
    )
    assert "DeletePod" not in words(world.requests)
    assert status_of(world).restarts.counted == 0
    world.remove("digits-a0-02")
    world.settle()
    assert "digits-a0-02" in world.live()


def test_a_node_that_fails_before_it_joins_is_tried_again_more_and_more_rarely_and_keeps_no_other_out_for_good() -> (
    None
):
    world = elastic(restart={"maxBackoffSeconds": 120})
    scale(world, 4)
    world.settle()
    waits = []
    for _ in range(6):
        world.run("digits-a0-03")
        world.end("digits-a0-02", 1)
        ended = world.now
        world.settle()
        due = decide(world.observe()).requeue_after
        while "digits-a0-02" not in world.live():
            world.kubelet_removes_deleted_pods()
            world.advance(1)
            world.settle()
        waits.append(round((world.now - ended).total_seconds()))
        assert due is not None
        assert due.total_seconds() <= waits[-1]
    assert waits == sorted(waits)
    assert 10 <= waits[0] <= 14
    assert 118 <= waits[-1] <= 124
    assert (status_of(world).restarts.counted, status_of(world).restarts.ignored, membership(world)) == (0, 0, (0, 2))
    world.run("digits-a0-02")
    world.settle()
    assert membership(world) == (1, 4)


def test_a_node_whose_init_container_fails_before_it_joins_is_not_created_again_at_once() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    failure = InitFailure("fetch", Terminated(1, None, "Error", "", None))
    world.show(replace(world.pods["digits-a0-02"], phase="Failed", init_failure=failure))
    world.settle()
    assert "DeletePod" not in words(world.requests)
    world.advance(60)
    world.settle()
    assert words(world.requests).count("DeletePod") == 1


def test_a_node_that_is_evicted_before_it_joins_is_replaced() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    world.run("digits-a0-02")
    pod = replace(world.pods["digits-a0-02"], phase="Failed", trainer=None, disruption="EvictionByEvictionAPI")
    world.pods["digits-a0-02"] = pod
    world.settle()
    world.settle()
    assert world.pods["digits-a0-02"].phase == "Pending"


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_size_of_a_training_that_ends_does_not_change_any_more(nodes: int) -> None:
    world = elastic()
    world.end("digits-a0-01", 0)
    scale(world, nodes)
    world.settle()
    assert membership(world) == (0, 2)
    assert "Create Pod" not in words(world.requests)
    world.end("digits-a0-00", 0)
    world.settle()
    assert status_of(world).holds(ConditionType.SUCCEEDED)
    counts = status_of(world).nodes
    assert counts is not None
    assert (counts.desired, counts.succeeded) == (nodes, 2)
    assert not world.live()


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_nodes_that_have_not_joined_go_with_the_job(policy: str) -> None:
    world = elastic(cleanPodPolicy=policy)
    scale(world, 3)
    world.settle()
    world.run("digits-a0-02")
    world.pods["digits-a0-02"] = replace(world.pods["digits-a0-02"], trainer=Waiting("", ""))
    for ordinal in range(2):
        world.end(f"digits-a0-0{ordinal}", 0)
    world.settle()
    assert status_of(world).holds(ConditionType.SUCCEEDED)
    assert resizing(world).status == "False"
    assert not world.live()


def test_a_lost_member_restarts_the_job_at_the_size_that_it_had_and_the_others_join_again() -> None:
    world = elastic(restart={"maxRestarts": 1})
    scale(world, 3)
    world.settle()
    world.remove("digits-a0-01")
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(70)
    world.settle()
    assert status_of(world).attempt == 1
    assert membership(world) == (0, 2)
    assert sorted(world.live()) == ["digits-a1-00", "digits-a1-01", "digits-a1-02"]
    world.run_all()
    world.settle()
    assert membership(world) == (1, 3)


def no_room(world: World, name: str) -> None:
    world.show(replace(world.pods[name], obstacle=Waiting("Unschedulable", "0/3 nodes are available")))


def test_nodes_that_run_train_without_those_for_which_there_is_no_room() -> None:
    world = World(spec=spec_of(nodes=4, elastic={**ELASTIC, "scaleDownAfterSeconds": 90}))
    world.settle()
    for ordinal in (0, 1, 3):
        world.run(f"digits-a0-0{ordinal}")
    no_room(world, "digits-a0-02")
    world.advance(89)
    world.settle()
    assert membership(world) == (0, 4)
    plan = decide(world.observe())
    assert plan.requeue_after is not None
    assert plan.requeue_after.total_seconds() <= 1
    world.advance(1)
    world.settle()
    assert membership(world) == (1, 2)
    assert status_of(world).summary.nodes == "2/4"
    assert "DeletePod" not in words(world.requests)
    world.run("digits-a0-02")
    world.settle()
    assert membership(world) == (2, 4)


def test_nodes_that_run_train_without_those_whose_pods_are_refused() -> None:
    world = World(spec=spec_of(nodes=3, elastic={"maxNodes": 3}), quota_refuses=frozenset({2}))
    for _ in range(4):
        world.reconcile()
        world.advance(1)
    world.run("digits-a0-0")
    world.run("digits-a0-1")
    for _ in range(4):
        world.advance(30)
        world.reconcile()
    assert membership(world) == (1, 2)
    assert status_of(world).pods_created
    assert (status_of(world).phase, status_of(world).summary.nodes) == (Phase.RUNNING, "2/3")


@pytest.mark.parametrize("why", ["below the least", "starting", "not looked at", "has succeeded"])
def test_nodes_that_run_wait_for_those_that_may_come(why: str) -> None:
    world = World(spec=spec_of(nodes=4, elastic={"minNodes": 3 if why == "below the least" else 1, "maxNodes": 4}))
    world.settle()
    world.run("digits-a0-0")
    world.run("digits-a0-1")
    no_room(world, "digits-a0-3")
    if why == "below the least":
        no_room(world, "digits-a0-2")
    elif why == "starting":
        world.assign("digits-a0-2")
    elif why == "has succeeded":
        world.end("digits-a0-2", 0)
    world.advance(600)
    world.settle()
    assert membership(world) == (0, 4)


def test_a_size_that_changes_while_the_pods_are_created_is_reached_after_that() -> None:
    world = World(spec=spec_of(elastic=ELASTIC))
    world.reconcile()
    world.reconcile(crash_after=3)
    scale(world, 3)
    world.settle()
    assert membership(world) == (0, 2)
    world.run_all()
    world.settle()
    assert membership(world) == (1, 3)


def test_a_suspended_job_changes_its_size_with_the_next_attempt() -> None:
    world = elastic()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    scale(world, 3)
    world.settle()
    assert words(world.requests) == []
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.spec = world.spec.model_copy(update={"suspend": False})
    world.settle()
    assert membership(world) == (0, 3)
    assert status_of(world).attempt == 1


def test_an_erased_status_takes_over_what_the_pods_know() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    world.run("digits-a0-02")
    world.settle()
    world.status = None
    world.requests.clear()
    world.settle()
    assert membership(world) == (1, 3)
    assert "AnnounceMembership" not in words(world.requests)


def test_a_pod_whose_annotation_was_changed_gets_the_right_one_again() -> None:
    world = elastic()
    world.pods["digits-a0-01"] = replace(world.pods["digits-a0-01"], membership="{}")
    world.requests.clear()
    world.settle()
    assert [each.name for each in world.requests if isinstance(each, AnnounceMembership)] == ["digits-a0-01"]


def test_a_membership_that_cannot_be_meant_is_replaced() -> None:
    world = elastic()
    status = status_of(world)
    world.status = status.model_copy(update={"membership": Membership(attempt=0, generation=7, nodes=4000)})
    world.settle()
    assert membership(world) == (0, 2)


def test_a_refused_pod_is_named_while_the_others_train_on() -> None:
    world = elastic()
    world.quota_refuses = frozenset({2})
    scale(world, 3)
    for _ in range(3):
        world.advance(6)
        world.reconcile()
    assert status_of(world).phase is Phase.RUNNING
    assert EXCEEDED_QUOTA in resizing(world).message


def test_the_size_is_not_part_of_what_pods_were_made_from() -> None:
    two, three = (spec_of(nodes=nodes, elastic=ELASTIC) for nodes in (2, 3))
    assert spec_hash(two) == spec_hash(three)
    assert spec_hash(two) != spec_hash(spec_of(nodes=2))


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_member_that_ends_before_it_hears_of_a_change_has_neither_finished_nor_failed(nodes: int, code: int) -> None:
    world = elastic(3, restart={"maxRestarts": 0})
    scale(world, nodes)
    world.settle()
    world.run_all()
    world.settle()
    assert membership(world) == (1, nodes)
    # The kubelets were slow; another node has asked their ranks to stop.
    for ordinal in range(2):
        world.end(f"digits-a0-0{ordinal}", code, json.dumps({"exitCode": code, "generation": 0}))
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(6)
    world.settle()
    status = status_of(world)
    assert not status.finished
    assert (status.attempt, status.restarts.counted, status.restarts.ignored) == (1, 0, 1)
    assert status.failure is not None
    assert status.failure.reason == "MissedChangeOfSize"
    assert f"node 0 ended before it had heard that {nodes} nodes train together from now on" in status.failure.message


def test_a_member_that_is_killed_after_a_change_of_size_has_failed() -> None:
    world = elastic(restart={"maxRestarts": 1})
    scale(world, 3)
    world.settle()
    world.run_all()
    world.settle()
    assert membership(world) == (1, 3)
    # The kernel has killed all of the container: there is no report.
    world.end("digits-a0-01", 137, "killed", reason="OOMKilled")
    world.settle()
    failure = status_of(world).failure
    assert failure is not None
    assert (failure.failure_class, status_of(world).restarts.counted) == ("OutOfMemory", 1)


def test_no_member_is_asked_to_follow_a_change_once_another_has_ended() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    world.run("digits-a0-02")
    # The operator dies once it has written who the members are.
    world.reconcile(crash_after=1)
    world.end("digits-a0-01", 0)
    world.requests.clear()
    world.settle()
    assert "AnnounceMembership" not in words(world.requests)
    assert (status_of(world).restarts.counted, status_of(world).restarts.ignored) == (0, 1)


@pytest.mark.parametrize("what", ["status", "membership"])
def test_a_membership_that_is_lost_is_what_the_pods_know_whatever_the_spec_asks_for(what: str) -> None:
    def lose(world: World) -> None:
        world.status = None if what == "status" else status_of(world).model_copy(update={"membership": None})

    world = elastic(restart={"maxRestarts": 0})
    scale(world, 3)
    world.settle()
    world.end("digits-a0-02", 1, json.dumps({"exitCode": 1}))
    world.settle()
    lose(world)
    world.settle()
    assert membership(world) == (0, 2)
    assert not status_of(world).finished

    world = elastic(3)
    world.end("digits-a0-00", 0)
    scale(world, 1)
    world.settle()
    lose(world)
    world.settle()
    assert membership(world) == (0, 3)
    assert not status_of(world).finished


def test_a_node_that_waits_behind_one_without_room_hears_that_it_is_not_a_member() -> None:
    world = World(spec=spec_of(nodes=4, elastic=ELASTIC))
    world.settle()
    for ordinal in (0, 1, 3):
        world.run(f"digits-a0-0{ordinal}")
    no_room(world, "digits-a0-02")
    world.advance(60)
    world.settle()
    # Else it would wait for four nodes until it gave up, and never join.
    assert announced(world, 3) == {"generation": 1, "nodes": 2}


def test_a_node_that_is_lost_does_not_join() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    world.run("digits-a0-02")
    world.show(replace(world.pods["digits-a0-02"], node_lost=True, ready=False))
    world.settle()
    assert membership(world) == (0, 2)


def test_a_node_that_has_not_heard_of_a_change_is_named() -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    world.run("digits-a0-02")
    world.reconcile(crash_after=1)
    assert resizing(world).message == (
        "3 nodes train together from now on; digits-a0-00, digits-a0-01, digits-a0-02 have not heard of it"
    )


def test_nodes_that_stop_for_a_change_of_size_have_not_stalled() -> None:
    deadline = {"seconds": 20, "action": "Restart"}
    world = training(nodes=2, elastic={"maxNodes": 4}, gracePeriodSeconds=60, progressDeadline=deadline)
    scale(world, 1)
    world.settle()
    # Its program does not stop, and answers meanwhile.
    for second in range(0, 78, 2):
        world.advance(2)
        world.report_rank(0, 40, since_step=float(second))
        world.settle()
        assert status_of(world).attempt == 0
    for second in range(78, 110, 2):
        world.advance(2)
        if status_of(world).attempt == 0:
            world.report_rank(0, 40, since_step=float(second))
        world.settle()
    assert status_of(world).restarts.last_reason == "TrainingStalled"


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", "3", "{}", '{"generation":0}', '{"generation":-1,"nodes":2}', '{"generation":0,"nodes":13}',
     '{"generation":0,"nodes":0}', '{"generation":true,"nodes":2}', '{"generation":"0","nodes":"2"}', "[" * 9000],
)  # fmt: skip
def test_an_annotation_that_the_operator_did_not_write_says_nothing(text: str | None) -> None:
    assert parse_membership(text, 0, 12) is None


def test_an_annotation_is_read_as_it_was_written() -> None:
    written = Membership(attempt=3, generation=5, nodes=12)
    assert parse_membership(membership_text(written), 3, 12) == written


def test_a_member_without_its_label_is_deleted_although_the_job_asks_for_fewer_nodes_by_then() -> None:
    world = elastic(4)
    scale(world, 2)
    del world.pods["digits-a0-03"]
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(70)
    world.settle()
    assert status_of(world).attempt == 1
    assert DeleteStray("digits-a0-03", 1) in world.requests
    assert DeleteStray("digits-a0-01", 1) in world.requests


@pytest.mark.parametrize("change", [{"suspend": True}, {"restart": {"maxRestarts": 0}}])
def test_a_node_that_joins_and_has_lost_its_label_is_deleted_when_the_job_ends_or_is_suspended(
    change: dict[str, object],
) -> None:
    world = elastic()
    scale(world, 3)
    world.settle()
    del world.pods["digits-a0-02"]
    if "suspend" in change:
        world.spec = world.spec.model_copy(update={"suspend": True})
    else:
        world.spec = world.spec.model_copy(
            update={"restart": world.spec.restart.model_copy(update={"max_restarts": 0})}
        )
        world.end("digits-a0-01", 1)
    world.advance(6)
    world.reconcile()
    world.settle()
    assert DeleteStray("digits-a0-02") in world.requests
