"""A part of the status that the API server refuses is reported in a condition."""

from world import World, running_world, training

from ddpjob_core.api.status import ConditionType

REFUSED = "the API server refuses status.progress.loss, which are not shown"


def reported(world: World) -> tuple[str, str]:
    assert world.status is not None
    condition = world.status.condition(ConditionType.STATUS_REFUSED)
    assert condition is not None
    return condition.status, condition.reason


def test_a_refusal_is_reported_with_an_event_until_the_whole_status_is_accepted() -> None:
    world = training()
    assert world.status is not None
    assert world.status.condition(ConditionType.STATUS_REFUSED) is None
    world.status_refused = REFUSED
    world.advance(6)
    world.settle()
    assert reported(world) == ("True", "RefusedByServer")
    assert [event.reason for event in world.events].count("StatusRefused") == 1
    world.status_refused = ""
    world.advance(6)
    world.settle()
    assert reported(world) == ("False", "Accepted")


def test_a_finished_job_reports_it_too() -> None:
    world = running_world()
    for name in world.live():
        world.end(name, 0)
    world.settle()
    world.status_refused = REFUSED
    world.advance(6)
    world.settle()
    assert reported(world) == ("True", "RefusedByServer")
