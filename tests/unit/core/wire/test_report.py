"""What a program may write in a termination message."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.wire.progress import parse_progress
from ddpjob_core.wire.report import parse_report

NOW = datetime(2026, 1, 1, tzinfo=UTC)
values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)
)


@given(st.text() | st.dictionaries(st.text(max_size=9), values).map(json.dumps))
def test_whatever_a_termination_message_says_is_a_report_or_none(text: str) -> None:
    parse_report(text)


@pytest.mark.parametrize(
    "text", ["", "killed", "{}", "[]", '{"failures": []}', "null", "{" * 5000, '{"exitCode": 1, "failures": "x"}']
)
def test_what_is_not_a_report_has_no_failures(text: str) -> None:
    report = parse_report(text)
    assert report is None or report.failures == ()


def test_half_a_surrogate_pair_in_a_report_does_not_break_the_status() -> None:
    report = parse_report(r'{"exitCode": 1, "failures": [{"message": "\ud800", "traceback": "\ud800"}]}')
    assert report is not None
    assert report.failures[0].message == "?"
    assert parse_progress({"lossText": "\ud800"}, NOW)[1] == "?"


def test_the_report_holds_restarts_a_stop_and_how_each_failed_process_ended() -> None:
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
