"""The number of attempts that a job may have, whatever begins them."""

import pytest
from world import World, running_world

from ddpjob_core.api import ConditionType
from ddpjob_core.api.constants import MAX_ATTEMPT


def suspended() -> World:
    world = running_world()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    return world


@pytest.mark.parametrize("attempt", [MAX_ATTEMPT, 2**31 - 1])
def test_a_job_that_is_resumed_after_its_last_attempt_has_failed_and_says_what_to_do(attempt: int) -> None:
    world = suspended()
    assert world.status is not None
    world.status = world.status.model_copy(update={"attempt": attempt})
    world.spec = world.spec.model_copy(update={"suspend": False})
    world.settle()
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.status, failed.reason) == ("True", "TooManyAttempts")
    assert failed.message == f"attempt {attempt} was the last of at most 9,999; delete the job and create it again"
    assert world.status.attempt == attempt


def test_the_last_attempt_itself_is_begun() -> None:
    world = suspended()
    assert world.status is not None
    world.status = world.status.model_copy(update={"attempt": MAX_ATTEMPT - 1})
    world.spec = world.spec.model_copy(update={"suspend": False})
    world.settle()
    assert (world.status.attempt, world.status.finished) == (MAX_ATTEMPT, False)
    assert world.live()
