"""`ddpjob status` of one job, and its row in the table of all jobs."""

import json
from typing import Any

import pytest
from cli_jobs import FAILED, FAILURE, LATER, RUNNING, SLOWEST, SUCCEEDED, WAITING, job, status_of, text_of

from ddpjob.views.progress import progress_line
from ddpjob.views.status import TABLE_HEAD, job_row, status_json, status_lines
from ddpjob.views.text import Tone


def test_the_status_of_a_running_job_tells_nodes_progress_and_pace() -> None:
    shown = text_of(
        status_lines(job(**{**RUNNING, "progress": {**RUNNING["progress"], "samplesPerSecond": 1200}}), LATER)
    )
    assert "Job: team/digits" in shown
    assert "Nodes: 2 running, of 2, 2 processes per node" in shown
    assert "Progress: epoch 7/20, step 210/600 (35%), loss 0.0831" in shown
    assert "Pace: 1.2k samples/s, 38s left" in shown
    assert "Root cause" not in shown


def test_the_status_of_a_job_that_changes_its_size_says_what_it_waits_for() -> None:
    joining = "2 nodes train of the 4 that spec.nodes asks for; pods digits-a0-2, digits-a0-3 (2): waiting for a node"
    condition = {**RUNNING["conditions"][0], "type": "Resizing", "status": "True", "message": joining}
    changing = {**RUNNING, "state": "Running,Resizing", "conditions": [*RUNNING["conditions"], condition]}
    lines = status_lines(job(**changing), LATER)
    assert "Phase: Running,Resizing" in text_of(lines)
    assert f"Note: {joining}" in text_of(lines)
    changing["conditions"][-1] = {**condition, "status": "False"}
    assert "Note" not in text_of(status_lines(job(**changing), LATER))


def test_before_its_first_report_an_attempt_shows_whose_checkpoint_it_goes_on_from() -> None:
    left = {**RUNNING["progress"], "attempt": 0, "lastCheckpointStep": 180}
    resumed = {**RUNNING, "attempt": 1, "progress": left, "summary": {"nodes": "2/2", "step": "180/600"}}
    shown = text_of(status_lines(job(**resumed), LATER))
    assert "Progress: step 180/600 (30%), saved by attempt 0: attempt 1 has not reported a step yet" in shown
    assert "loss" not in shown
    assert progress_line(status_of(resumed)) == "Running  2/2 nodes  attempt 1  step 180/600  30%"
    without = {**resumed, "progress": {**left, "lastCheckpointStep": None}, "summary": {"nodes": "2/2"}}
    assert "Progress" not in text_of(status_lines(job(**without), LATER))


def test_the_status_of_a_running_job_names_the_rank_that_slows_down_the_others() -> None:
    lines = status_lines(job(**RUNNING, slowest=SLOWEST), LATER)
    found = "rank 3 (digits-a0-1 on node node-1) takes 2.1 times as long as the others: waiting for its data"
    assert f"Slowest: {found}" in text_of(lines)
    elsewhere = {**SLOWEST, "nodeName": None, "factor": 2, "what": "Checkpoint"}
    lines = status_lines(job(**RUNNING, slowest=elsewhere), LATER)
    found = "rank 3 (digits-a0-1) takes 2 times as long as the others: writing checkpoints"
    assert f"Slowest: {found}" in text_of(lines)
    assert "Slowest" not in text_of(status_lines(job(**RUNNING), LATER))


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
        "slowest",
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
