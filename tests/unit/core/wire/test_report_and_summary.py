"""What a program reports, and how it is shown."""

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api import DDPJobStatus
from ddpjob_core.api.columns import Summary
from ddpjob_core.api.display import format_count, format_seconds
from ddpjob_core.api.status import Nodes, Phase, Progress
from ddpjob_core.observations.progress import current_progress
from ddpjob_core.status.summary import summarize
from ddpjob_core.wire.progress import parse_progress
from ddpjob_core.wire.report import parse_report

NOW = datetime(2026, 1, 1, tzinfo=UTC)
values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)
)
FIELDS = [
    "epoch",
    "totalEpochs",
    "step",
    "totalSteps",
    "loss",
    "lossText",
    "samplesPerSecond",
    "etaSeconds",
    "lastStepTime",
    "lastCheckpointStep",
]


@given(st.dictionaries(st.sampled_from(FIELDS), values))
def test_whatever_a_program_reports_becomes_a_status_that_json_can_hold(raw: dict[str, object]) -> None:
    progress, loss_text = parse_progress(raw, NOW)
    wire = json.loads(json.dumps(progress.to_wire(), allow_nan=False))
    assert Progress.model_validate(wire) == progress
    assert len(loss_text) <= 16


@given(st.text() | st.dictionaries(st.text(max_size=9), values).map(json.dumps))
def test_whatever_a_termination_message_says_is_a_report_or_none(text: str) -> None:
    parse_report(text)


@pytest.mark.parametrize(
    "text", ["", "killed", "{}", "[]", '{"failures": []}', "null", "{" * 5000, '{"exitCode": 1, "failures": "x"}']
)
def test_what_is_no_report_has_no_failures(text: str) -> None:
    report = parse_report(text)
    assert report is None or report.failures == ()


def test_numbers_and_times_beyond_all_bounds_count_as_missing() -> None:
    report = parse_report('{"exitCode": 1, "failures": [{"time": 1' + "0" * 400 + "}]}")
    assert report is not None
    assert report.failures[0].time == 0
    assert parse_progress({"lastStepTime": "0001-01-01T00:00:00+14:00"}, NOW)[0].last_step_time is None


def test_half_a_surrogate_pair_in_a_report_does_not_break_the_status() -> None:
    report = parse_report(r'{"exitCode": 1, "failures": [{"message": "\ud800", "traceback": "\ud800"}]}')
    assert report is not None
    assert report.failures[0].message == "?"
    assert parse_progress({"lossText": "\ud800"}, NOW)[1] == "?"


def test_the_report_tells_restarts_a_stop_and_what_kind_of_end_each_failure_was() -> None:
    failure = '{"rank": 1, "signal": "SIGKILL", "oom": true, "errorType": "ModuleNotFoundError"}'
    report = parse_report(f'{{"exitCode": 143, "stopped": true, "processRestarts": 2, "failures": [{failure}]}}')
    assert report is not None
    assert (report.stopped, report.process_restarts) == (True, 2)
    assert (report.failures[0].oom, report.failures[0].error_type) == (True, "ModuleNotFoundError")


@pytest.mark.parametrize(
    ("told", "restarts"), [("-3", 0), ("1" + "0" * 15, 1_000_000), ("true", 0), ("1.5", 0), ('"2"', 0), ("null", 0)]
)
def test_what_a_report_must_not_say_is_bounded_or_counts_as_missing(told: str, restarts: int) -> None:
    failure = '{"oom": 1, "errorType": ["x"]}'
    report = parse_report(f'{{"exitCode": 1, "stopped": 1, "processRestarts": {told}, "failures": [{failure}]}}')
    assert report is not None
    assert (report.stopped, report.process_restarts) == (False, restarts)
    assert (report.failures[0].oom, report.failures[0].error_type) == (False, None)


def test_nan_is_shown_as_text_and_left_out_as_a_number() -> None:
    progress, text = parse_progress({"loss": None, "lossText": "nan", "step": 3}, NOW)
    assert (progress.loss, text) == (None, "nan")
    assert parse_progress({"loss": math.nan}, NOW)[0].loss is None


def test_percent_never_exceeds_a_hundred() -> None:
    assert parse_progress({"step": 12, "totalSteps": 10}, NOW)[0].percent == 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (38, "38s"), (60, "1m"), (310, "5m10s"), (3600, "1h"), (7500, "2h5m"), (273600, "3d4h"), (-5, "0s")],
)
def test_spans_are_shown_as_kubectl_shows_ages(seconds: int, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.834, "0.83"),
        (12.5, "12.5"),
        (950, "950"),
        (999.7, "1k"),
        (1234, "1.2k"),
        (48_000, "48k"),
        (3.1e6, "3.1M"),
        (0, "0"),
    ],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert format_count(value) == text


@given(st.floats(0, 1e15))
def test_every_count_is_shown_in_a_few_characters(value: float) -> None:
    assert len(format_count(value)) <= 8


def test_the_columns_say_what_the_status_says() -> None:
    progress = Progress(epoch=7, total_epochs=20, step=210, total_steps=600, eta_seconds=38, samples_per_second=1234.0)
    status = DDPJobStatus(phase=Phase.RUNNING, nodes=Nodes(desired=2, ready=2), progress=progress)
    summary = summarize(status, "0.0831")
    assert (summary.nodes, summary.epoch, summary.step, summary.loss, summary.eta, summary.speed) == (
        "2/2",
        "7/20",
        "210/600",
        "0.0831",
        "38s",
        "1.2k/s",
    )


def test_a_job_without_progress_has_empty_columns() -> None:
    summary = summarize(DDPJobStatus(nodes=Nodes(desired=3, ready=1)), "")
    assert (summary.nodes, summary.epoch, summary.step, summary.loss, summary.eta) == ("1/3", "", "", "", "")


LEFT = Progress(
    attempt=0,
    epoch=7,
    total_epochs=20,
    step=210,
    total_steps=600,
    percent=35,
    loss=0.1,
    eta_seconds=38,
    samples_per_second=1234.0,
)


@pytest.mark.parametrize(
    ("saved", "columns"),
    [(None, ("", "")), (210, ("7/20", "210/600")), (180, ("", "180/600"))],
)
def test_before_its_first_report_an_attempt_is_as_far_as_the_checkpoint_that_it_goes_on_from(
    saved: int | None, columns: tuple[str, str]
) -> None:
    known = LEFT.model_copy(update={"last_checkpoint_step": saved})
    status = DDPJobStatus(
        phase=Phase.RUNNING, attempt=1, nodes=Nodes(desired=2, ready=2), progress=known, summary=Summary(loss="0.1")
    )
    shown = summarize(status, "0.1")
    assert (shown.epoch, shown.step) == columns
    assert (shown.loss, shown.eta, shown.speed) == ("", "", "")


def test_the_percent_of_an_attempt_that_goes_on_is_that_of_its_checkpoint() -> None:
    known = LEFT.model_copy(update={"last_checkpoint_step": 180})
    assert current_progress(DDPJobStatus(attempt=1, progress=known)).percent == 30
    assert current_progress(DDPJobStatus(attempt=0, progress=known)).percent == 35
