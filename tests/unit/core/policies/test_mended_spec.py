"""A job that failed for its spec, and whose spec is edited."""

from datetime import timedelta

import pytest
from world import START, World, running_world, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.status import Phase, Restarts
from ddpjob_core.decide import decide
from ddpjob_core.observations.observed import Rejection, RejectionKind

WRONG = {"template": {"spec": {"hostname": "mine"}}}


def failed_world(**fields: object) -> World:
    world = World(spec=spec_of(**{**WRONG, **fields}))
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.FAILED
    assert world.status.completion_time == START
    return world


def edit(world: World, **fields: object) -> None:
    world.spec = spec_of(**fields)
    world.generation += 1


def test_a_mended_spec_starts_the_next_attempt_and_none_is_counted() -> None:
    world = failed_world()
    world.advance(60)
    edit(world)
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.status, failed.reason, failed.observed_generation) == ("False", "SpecChanged", 2)
    assert (world.status.attempt, world.status.restarts) == (1, Restarts())
    assert world.status.completion_time is None
    assert world.status.start_time == START + timedelta(seconds=60)
    assert world.status.phase is not Phase.FAILED
    assert world.live() == ["digits-a1-0", "digits-a1-1"]
    assert [event.reason for event in world.events] == ["InvalidSpec", "Edited", "SpecChanged", "PodsCreated"]
    for name in world.live():
        world.run(name)
        world.end(name, 0)
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("recorded", ["Restricted", None])
def test_a_mended_job_that_has_trained_goes_on_as_the_user_of_its_checkpoints(recorded: str | None) -> None:
    world = running_world(nodes=2)
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.generation += 1
    world.settle()
    for name in list(world.live()):
        world.end(name, 143)
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.status is not None
    world.status = world.status.model_copy(update={"pod_security": recorded})
    edit(world, nodes=2, **WRONG)
    world.settle()
    assert world.status.phase is Phase.FAILED
    edit(world, nodes=2)
    world.settle()
    assert world.live()
    assert world.status.pod_security == recorded


def test_what_the_api_server_refused_is_asked_for_again_after_an_edit() -> None:
    world = running_world(nodes=2)
    world.remove("digits-a0-1")
    world.status = None
    refusal = Rejection(RejectionKind.INVALID, ObjectName("Pod", "digits-a0-1"), "spec.nodeSelektor: unknown field")
    world.rejections = (refusal,)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.FAILED
    edit(world, nodes=3)
    world.reconcile()
    # Answers belong to an attempt.
    world.rejections = ()
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.status.attempt == 1
    assert world.live() == ["digits-a1-0", "digits-a1-1", "digits-a1-2"]
    reasons = [event.reason for event in world.events]
    assert reasons[reasons.index("InvalidSpec") :] == ["InvalidSpec", "Edited", "SpecChanged", "PodsCreated"]


def test_the_time_to_live_ends_with_the_edit_even_if_it_is_over() -> None:
    world = failed_world(ttlSecondsAfterFinished=60)
    world.advance(60)
    assert [type(action).__name__ for action in decide(world.observe()).actions] == ["DeleteJob"]
    edit(world, ttlSecondsAfterFinished=60)
    world.settle()
    assert not world.job_deleted
    world.advance(60)
    world.settle()
    assert not world.job_deleted


def test_a_spec_that_still_cannot_work_says_why_now_and_is_not_started() -> None:
    world = failed_world()
    world.advance(60)
    edit(world, backend="nccl")
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.status, failed.observed_generation, failed.message[:13]) == ("True", 2, "spec.backend:")
    assert world.status.completion_time == START + timedelta(seconds=60)
    assert not world.pods
    writes = len(world.status_writes)
    world.settle()
    assert len(world.status_writes) == writes


def test_a_suspended_edit_is_suspended_and_resumes() -> None:
    world = failed_world()
    edit(world, suspend=True)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.SUSPENDED
    edit(world)
    world.settle()
    assert len(world.live()) == 2


@pytest.mark.parametrize("reason", ["MaxRestartsExceeded", "CannotStart"])
def test_another_failure_is_final_whatever_changes(reason: str) -> None:
    world = failed_world()
    assert world.status is not None
    conditions = [each.model_copy(update={"reason": reason}) for each in world.status.conditions]
    world.status = world.status.model_copy(update={"conditions": conditions})
    edit(world, ttlSecondsAfterFinished=3600)
    world.settle()
    assert world.status.phase is Phase.FAILED
    assert not world.pods
