"""What the command line shows of a job, by its status."""

import json
from datetime import timedelta
from typing import Any

import pytest
from cli_jobs import FAILED, FAILURE, NOW, RUNNING, SUCCEEDED, condition, job

from ddpjob.views.advice import advice, meaning
from ddpjob.views.job import Job, JobEvent
from ddpjob.views.outcome import outcome_lines
from ddpjob.views.progress import is_news, progress_line, waiting_for
from ddpjob.views.sparkline import LossHistory, sparkline
from ddpjob.views.status import TABLE_HEAD, job_row, status_json, status_lines
from ddpjob.views.story import story_json, story_lines, story_of
from ddpjob.views.text import Line, Tone
from ddpjob_core.api.status import DDPJobStatus, Failure
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.observed import PodRecord

LATER = NOW + timedelta(minutes=2)
STALLED = {
    **RUNNING,
    "phase": "Stalled",
    "conditions": [condition("TrainingStalled", "True", "NoStep", "rank 2 waits")],
}
WAITING = {
    "phase": "Pending",
    "nodes": {"desired": 2},
    "conditions": [condition("RendezvousReady", "False", "ImagePullBackOff", "0/2 nodes are up; check the image")],
}


def status_of(fields: dict[str, Any]) -> DDPJobStatus:
    return DDPJobStatus.model_validate(fields)


def text_of(lines: list[Line]) -> str:
    return "\n".join(f"{line.label}: {line.text}" for line in lines)


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


def test_the_status_of_a_running_job_tells_nodes_progress_and_pace() -> None:
    shown = text_of(
        status_lines(job(**{**RUNNING, "progress": {**RUNNING["progress"], "samplesPerSecond": 1200}}), LATER)
    )
    assert "Job: team/digits" in shown
    assert "Nodes: 2 running, of 2, 2 processes per node" in shown
    assert "Progress: epoch 7/20, step 210/600 (35%), loss 0.0831" in shown
    assert "Pace: 1.2k samples/s, 38s left" in shown
    assert "Root cause" not in shown


def test_before_its_first_report_an_attempt_shows_whose_checkpoint_it_goes_on_from() -> None:
    left = {**RUNNING["progress"], "attempt": 0, "lastCheckpointStep": 180}
    resumed = {**RUNNING, "attempt": 1, "progress": left, "summary": {"nodes": "2/2", "step": "180/600"}}
    shown = text_of(status_lines(job(**resumed), LATER))
    assert "Progress: step 180/600 (30%), saved by attempt 0: attempt 1 has not reported a step yet" in shown
    assert "loss" not in shown
    assert progress_line(status_of(resumed)) == "Running  2/2 nodes  attempt 1  step 180/600  30%"
    without = {**resumed, "progress": {**left, "lastCheckpointStep": None}, "summary": {"nodes": "2/2"}}
    assert "Progress" not in text_of(status_lines(job(**without), LATER))


def test_the_status_of_a_failed_job_names_the_rank_and_where_it_ran() -> None:
    lines = status_lines(job(**FAILED), LATER)
    shown = text_of(lines)
    assert "Phase: Failed after 1m, 1m ago" in shown
    assert "Root cause: Error: rank 3 exited with code 7: ValueError: bad batch" in shown
    assert "Where: rank 3, digits-a1-1, node-1, attempt 1" in shown
    assert "Attempt: 1, 1 of 3 restarts used, last: ExitCode" in shown
    assert [line.tone for line in lines if line.label == "Phase"] == [Tone.BAD]


def test_a_failure_that_was_overcome_is_not_called_the_cause_of_anything() -> None:
    shown = text_of(status_lines(job(**{**RUNNING, "failure": FAILURE}), LATER))
    assert "Last failure: Error" in shown


def test_a_job_that_the_operator_has_not_seen_has_a_status_too() -> None:
    shown = text_of(status_lines(job(), LATER))
    assert "Phase: Pending, created 2m ago" in shown
    assert "Waiting for: the operator has not seen it yet" in shown
    assert "Nodes: 2 requested" in shown


@pytest.mark.parametrize("fields", [{}, RUNNING, FAILED, SUCCEEDED, WAITING])
def test_the_status_as_json_has_the_same_keys_for_every_job(fields: dict[str, Any]) -> None:
    told = json.loads(json.dumps(status_json(job(**fields))))
    assert list(told) == [
        "namespace",
        "name",
        "uid",
        "finished",
        "waitsFor",
        "nodesAskedFor",
        "phase",
        "attempt",
        "conditions",
        "nodes",
        "restarts",
        "progress",
        "failure",
        "startTime",
        "completionTime",
    ]


def test_the_json_of_a_failed_job_holds_the_api_s_own_failure() -> None:
    told = status_json(job(**FAILED))
    assert (told["finished"], told["failure"]["rank"], told["failure"]["class"]) == (True, 3, "Error")


def test_a_row_has_a_cell_for_each_column() -> None:
    row = dict(zip(TABLE_HEAD, job_row(job(**RUNNING), LATER), strict=True))
    assert row["NAME"] == "digits"
    assert row["STEP"] == "210/600"
    assert row["AGE"] == "2m"


def test_the_end_of_a_failed_job_shows_the_last_of_the_traceback() -> None:
    shown = text_of(outcome_lines(job(**FAILED)))
    assert "digits has failed after 1m: MaxRestartsExceeded" in shown
    assert "ValueError: bad batch" in shown
    assert "ddpjob why digits -n team" in shown


def test_the_end_of_a_successful_job_is_one_line() -> None:
    assert [line.text for line in outcome_lines(job(**SUCCEEDED))] == ["digits has succeeded after 38s, loss 0.01"]


def test_a_job_that_goes_on_has_no_end() -> None:
    assert outcome_lines(job(**RUNNING)) == []


# The story


def event(reason: str, message: str, seconds: int) -> JobEvent:
    return JobEvent(NOW + timedelta(seconds=seconds), "Normal", reason, message)


EVENTS = [
    event("PodsCreated", "created 2 pods for attempt 0", 0),
    event("Restarting", "rank 3 exited with code 7; attempt 1 starts (restart 1 of 1)", 30),
    event("MaxRestartsExceeded", "rank 3 exited with code 7", 60),
]


def pod(name: str, attempt: int, ordinal: int) -> PodRecord:
    return PodRecord("team", name, name, "1", "u", "digits", attempt, ordinal, "Failed")


def told(of: Job, events: list[JobEvent] | None = None, pods: list[PodRecord] | None = None) -> str:
    return text_of(story_lines(story_of(of, events or [], pods or [], LATER)))


def test_the_story_of_a_failed_job_holds_cause_traceback_advice_and_what_happened() -> None:
    shown = told(job(**FAILED), EVENTS, [pod("digits-a1-1", 1, 1)])
    assert "digits has failed in attempt 1: MaxRestartsExceeded" in shown
    assert "Root cause: Error: the program raised" in shown
    assert "Where: rank 3, pod digits-a1-1, node node-1, attempt 1" in shown
    assert "Ended with: exit code 7" in shown
    assert "ValueError: bad batch" in shown
    assert "Because of it: rank 0: ConnectionLost: connection closed" in shown
    assert "raise spec.restart.maxRestarts" in shown
    assert "+30s: Restarting: rank 3 exited with code 7" in shown
    assert "ddpjob logs digits -n team --attempt 1 --rank 3" in shown


def test_the_log_of_a_pod_that_is_gone_is_not_offered() -> None:
    assert "ddpjob logs" not in told(job(**FAILED), EVENTS, [])


def test_when_the_events_are_forgotten_the_status_still_tells_the_turns() -> None:
    shown = told(job(**FAILED))
    assert "PodsCreated" in shown
    assert "+30s: Restarting: after ExitCode" in shown
    assert "+1m: MaxRestartsExceeded: rank 3 exited with code 7 (attempt 1)" in shown


def test_what_an_event_has_told_is_not_told_twice() -> None:
    assert told(job(**FAILED), EVENTS).count("MaxRestartsExceeded: ") == 1


def test_the_story_of_a_waiting_job_points_to_the_doctor() -> None:
    shown = told(job(**WAITING))
    assert "digits is Pending: 0/2 nodes are up; check the image" in shown
    assert "ddpjob doctor digits -n team" in shown


def test_a_suspended_job_needs_no_doctor() -> None:
    suspended = {"phase": "Suspended", "conditions": [condition("Suspended", "True", "Suspended", "no pods")]}
    assert "doctor" not in told(job(**suspended))


def test_the_story_of_a_success_after_restarts_counts_them() -> None:
    shown = told(job(**{**SUCCEEDED, "attempt": 2, "restarts": {"counted": 1, "ignored": 1}}))
    assert "digits has succeeded in attempt 2, after 2 restarts" in shown


def test_the_story_as_json_is_for_programs() -> None:
    of = job(**FAILED)
    story = json.loads(json.dumps(story_json(of, story_of(of, EVENTS, [], LATER))))
    assert list(story) == ["namespace", "name", "phase", "verdict", "rootCause", "whatItIs", "toDo", "events", "logs"]
    assert story["rootCause"]["exitCode"] == 7
    assert story["events"][0] == {
        "time": "2026-01-01T00:00:00Z",
        "reason": "PodsCreated",
        "message": "created 2 pods for attempt 0",
    }


@pytest.mark.parametrize("kind", list(FailureClass))
def test_every_class_of_failures_has_a_meaning_and_something_to_do(kind: FailureClass) -> None:
    failure = Failure(failure_class=kind.value, reason="R", message="m")
    assert meaning(failure)
    assert advice(failure)


def test_a_class_of_a_newer_version_is_no_error() -> None:
    failure = Failure(failure_class="Unheard", reason="R", message="m")
    assert meaning(failure) == ""
    assert advice(failure) == []


def test_a_lost_pod_sends_to_its_own_node() -> None:
    failure = Failure(failure_class="PodLost", reason="NodeLost", message="m", node_name="node-7")
    assert advice(failure)[0].endswith("kubectl describe node node-7")


# Sparklines


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], "▁"),
        ([2.0, 2.0], "▁▁"),
        ([8.0, 1.0], "█▁"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "▁▂▃▄▅▆▇█"),
        ([1e300, -1e300], "█▁"),
        ([float(n) for n in range(30)], sparkline([float(n) for n in range(10, 30)])),
    ],
)
def test_a_sparkline_has_a_bar_for_each_of_the_newest_values(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def at_step(step: int, loss: float) -> Job:
    return job(**{**RUNNING, "progress": {"step": step, "loss": loss}})


def test_a_history_takes_each_step_once_and_forgets_jobs_that_are_gone() -> None:
    history = LossHistory()
    for seen in (at_step(1, 4.0), at_step(1, 4.0), at_step(2, 1.0)):
        history.see([seen])
    assert history.line(at_step(2, 1.0)) == "█▁"
    history.see([])
    history.see([at_step(3, 1.0)])
    assert history.line(at_step(3, 1.0)) == "▁"
