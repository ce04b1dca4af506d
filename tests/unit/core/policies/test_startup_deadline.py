"""spec.startupDeadline."""

from dataclasses import replace

import pytest
from world import World, running_world, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.api.status import Progress
from ddpjob_core.observations.observed import Waiting
from ddpjob_core.wire.progress import ProgressReport


@pytest.mark.parametrize("action", ["Fail", "Restart"])
def test_pods_that_do_not_come_up_in_time_are_named_with_their_reason(action: str) -> None:
    world = World(spec=spec_of(startupDeadline={"seconds": 30, "action": action}))
    world.settle()
    world.run("digits-a0-0")
    name = "digits-a0-1"
    world.pods[name] = replace(world.pods[name], scheduled=True, trainer=Waiting("ImagePullBackOff", "no such image"))
    world.advance(29)
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.finished) == (0, False)
    world.advance(1)
    world.settle()
    assert world.status.failure is not None
    assert (world.status.failure.reason, world.status.failure.pod) == ("StartupDeadlineExceeded", name)
    assert "ImagePullBackOff" in world.status.failure.message
    assert (world.status.attempt, world.status.finished) == ((0, True) if action == "Fail" else (1, False))


def test_a_warning_of_the_startup_deadline_is_a_condition_and_an_event() -> None:
    world = World(spec=spec_of(startupDeadline={"seconds": 30, "action": "Warn"}))
    world.settle()
    world.run("digits-a0-0")
    world.advance(31)
    world.settle()
    assert world.status is not None
    condition = world.status.condition(ConditionType.TRAINING)
    assert condition is not None
    assert condition.reason == "StartupDeadlineExceeded"
    assert [event.reason for event in world.events].count("StartupDeadlineExceeded") == 1


def test_a_program_that_answers_but_makes_no_step_has_not_running_world() -> None:
    world = running_world(startupDeadline={"seconds": 30})
    world.progress = ProgressReport(0, Progress(step=0), "")
    world.advance(30)
    world.report_rank(0, None)
    world.settle()
    assert world.status is not None
    assert world.status.failure is not None
    assert world.status.failure.reason == "StartupDeadlineExceeded"


def test_a_program_that_reports_nothing_has_started_when_all_nodes_are_up() -> None:
    world = running_world(startupDeadline={"seconds": 30})
    world.advance(1000)
    world.settle()
    assert world.status is not None
    assert not world.status.finished
