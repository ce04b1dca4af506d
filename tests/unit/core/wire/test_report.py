"""What a program may write in a termination message."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.wire.fields import Fields
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
    assert report.failures[0].message == ""
    assert parse_progress(Fields({"lossText": "\ud800"}), NOW)[1] == ""


def test_the_report_holds_restarts_a_stop_and_how_each_failed_process_ended() -> None:
    failure = '{"rank": 1, "signal": "SIGKILL", "oom": true, "errorType": "ModuleNotFoundError"}'
    report = parse_report(
        f'{{"exitCode": 143, "stopped": true, "stoppedBy": "SIGTERM", "processRestarts": 2, "failures": [{failure}]}}'
    )
    assert report is not None
    assert (report.stopped, report.process_restarts) == (True, 2)
    assert (report.failures[0].oom, report.failures[0].error_type) == (True, "ModuleNotFoundError")


@pytest.mark.parametrize(
    "told", ["-3", "1000001", "1099511627776", "1" + "0" * 300, "true", "1.5", "1e6", '"2"', "[]", "NaN"]
)
def test_what_a_report_must_not_say_counts_as_missing_and_is_named(told: str) -> None:
    failure = '{"oom": 1, "errorType": ["x"]}'
    report = parse_report(f'{{"exitCode": 1, "stopped": 1, "processRestarts": {told}, "failures": [{failure}]}}')
    assert report is not None
    assert (report.stopped, report.process_restarts) == (False, 0)
    assert (report.failures[0].oom, report.failures[0].error_type) == (False, None)
    assert report.dropped == {"stopped", "processRestarts", "failures.oom", "failures.errorType"}


def test_a_report_has_at_most_sixteen_failures() -> None:
    report = parse_report(json.dumps({"exitCode": 1, "failures": [{} for _ in range(1300)]}))
    assert report is not None
    assert len(report.failures) == 16
    assert report.dropped == {"failures"}


@pytest.mark.parametrize(
    "message",
    [
        '{"exitCode": 1, "failures": ' + "[" * 60_000,
        '{"exitCode": 1, "failures": ' + '{"a":' * 9_000 + "1" + "}" * 9_000 + "}",
        '{"exitCode": ' + "9" * 60_000 + "}",
        '{"exitCode": 1, "x": "' + "x" * 70_000 + '"}',
        "\x00\xff\x1b",
    ],
    ids=["open", "deep", "digits", "huge", "binary"],
)
def test_a_message_that_is_too_long_too_deep_or_not_json_holds_no_report(message: str) -> None:
    assert parse_report(message) is None


def test_texts_of_a_report_are_single_lines_of_printable_characters_and_the_traceback_keeps_its_lines() -> None:
    failure = {
        "message": "ValueError: \x1b[31mbad\x1b[0m\nroot cause: none\u202e",
        "traceback": 'File "a.py"\n\tbad\x1b]52;c;cm0gLXJm\x07\r\n  end',
        "signal": "SIGKILL\x1b[2J",
        "errorType": "Value\x00Error",
    }
    report = parse_report(json.dumps({"exitCode": 1, "failures": [failure]}))
    assert report is not None
    (found,) = report.failures
    assert found.message == "ValueError: bad root cause: none"
    assert found.traceback == 'File "a.py"\n bad\n  end'
    assert (found.signal, found.error_type) == (None, "ValueError")
