"""`ddpjob why`."""

import json
from datetime import timedelta

from cli_jobs import FAILED, FAILURE, LATER, NOW, RUNNING, SLOWEST, SUCCEEDED, WAITING, condition, job, text_of

from ddpjob.views.job import Job, JobEvent
from ddpjob.views.outcome import outcome_lines
from ddpjob.views.status import status_lines
from ddpjob.views.story import story_json, story_lines, story_of
from ddpjob_core.observations.observed import PodRecord


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
    assert "Consequences: rank 0: ConnectionLost: connection closed" in shown
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


def test_the_story_of_a_running_job_names_the_rank_that_slows_down_the_others_and_what_to_do() -> None:
    found = story_of(job(**RUNNING, slowest=SLOWEST), [], [], LATER)
    assert found.verdict.startswith("digits is running: rank 3 (digits-a0-1 on node node-1) takes 2.1 times as long")
    assert found.to_do == ("compare the volumes of the nodes, or read ahead with data_workers",)


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


def test_a_long_message_is_shown_once() -> None:
    long = "rank 3 exited with code 7: ValueError: " + " ".join(["bad batch,"] * 20)
    failed = condition("Failed", "True", "MaxRestartsExceeded", f"{long} (attempt 1; 1 of 1 used)")
    traceback = f'File "train.py", line 3\n    raise\n{long.partition("code 7: ")[2]}'
    of = job(**{**FAILED, "failure": {**FAILURE, "message": long, "traceback": traceback}, "conditions": [failed]})
    events = [event("Restarting", f"{long}; attempt 1 starts", 30), event("MaxRestartsExceeded", failed["message"], 60)]
    for shown in (told(of, events), text_of(status_lines(of, LATER))):
        assert shown.count("bad batch, bad batch") == 20 // 2
    assert "    raise\n: ValueError: …" in told(of, events)
    assert text_of(outcome_lines(of)).count("bad batch, bad batch") == 20 // 2
    assert "+30s: Restarting: the root cause above; attempt 1 starts" in told(of, events)
    assert "Why: MaxRestartsExceeded: the root cause below (attempt 1; 1 of 1 used)" in text_of(status_lines(of, LATER))


def test_a_job_that_requests_no_gpu_learns_it() -> None:
    failure = {**FAILURE, "message": "RuntimeError: No CUDA GPUs are available"}
    assert "the job requests no GPUs" in told(job(**{**FAILED, "failure": failure, "backend": "gloo"}))
    assert "the process sees no GPU" in told(job(**{**FAILED, "failure": failure, "backend": "nccl"}))
