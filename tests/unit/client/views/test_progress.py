"""The line that shows how a followed job is doing."""

from typing import Any

import pytest
from cli_jobs import RUNNING, SUCCEEDED, WAITING, condition, status_of

from ddpjob.views.progress import is_news, progress_line, waiting_for

STALLED = {
    **RUNNING,
    "phase": "Stalled",
    "conditions": [condition("TrainingStalled", "True", "NoStep", "rank 2 waits")],
}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "Pending  the operator has not seen it yet"),
        (RUNNING, "Running  2/2 nodes  epoch 7/20  step 210/600  35%  loss 0.0831  38s left"),
        (STALLED, "Stalled  2/2 nodes  epoch 7/20  step 210/600  35%  loss 0.0831  38s left  rank 2 waits"),
        (WAITING, "Pending  0/2 nodes  0/2 nodes are up; check the image"),
        ({**WAITING, "attempt": 2}, "Pending  0/2 nodes  attempt 2  0/2 nodes are up; check the image"),
        (SUCCEEDED, "Succeeded"),
    ],
)
def test_a_line_of_progress_says_how_far_a_job_is_or_what_it_waits_for(fields: dict[str, Any], line: str) -> None:
    assert progress_line(status_of(fields)) == line


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({}, False),
        ({"progress": {"step": 215, "totalSteps": 600, "percent": 36}}, False),
        ({"progress": {"step": 240, "totalSteps": 600, "percent": 40}}, True),
        ({"attempt": 1}, True),
        ({"phase": "Stalled"}, True),
        ({"conditions": [condition("TrainingStalled", "True", "NoStep", "rank 2 waits")]}, True),
    ],
)
def test_news_are_phases_attempts_reasons_and_tenths(change: dict[str, Any], news: bool) -> None:  # noqa: FBT001
    assert is_news(status_of(RUNNING), status_of({**RUNNING, **change})) is news


def test_the_first_status_is_news() -> None:
    assert is_news(None, status_of({}))


def test_a_job_that_is_being_suspended_waits_for_its_pods() -> None:
    fields = {**RUNNING, "conditions": [condition("Suspended", "False", "Stopping", "waiting for 2 pods to stop")]}
    assert waiting_for(status_of(fields)) == "waiting for 2 pods to stop"


def test_a_finished_job_waits_for_nothing() -> None:
    assert (
        waiting_for(
            status_of({**WAITING, **SUCCEEDED, "conditions": [*WAITING["conditions"], *SUCCEEDED["conditions"]]})
        )
        == ""
    )
