"""What a rank or a waiting launcher may say on /progress."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ddpjob_core.wire.fields import Fields
from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.rank_report import parse_rank_report, parse_wait

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = PollTarget(0, "10.0.0.1", 9401)


@pytest.mark.parametrize("name", ["secondsSinceStep", "quietSeconds", "activitySeconds"])
@pytest.mark.parametrize(
    "value", [1e300, -1e300, 1e12, -0.001, 10**400, float("nan"), float("inf"), "x", True, [], {"a": 1}]
)
def test_seconds_out_of_range_count_as_missing_and_are_named(name: str, value: object) -> None:
    fields = Fields({name: value, "step": 3})
    report = parse_rank_report(fields, TARGET, NOW)
    assert (report.seconds_since_step, report.quiet_seconds, report.activity_seconds) == (None, None, None)
    assert report.step == 3
    assert fields.dropped == {name}


@pytest.mark.parametrize(
    ("name", "value"), [("processRestarts", value) for value in (2**40, 2**31, -1)] + [("step", 2**63), ("step", -1)]
)
def test_counts_out_of_range_count_as_missing_and_are_named(name: str, value: int) -> None:
    fields = Fields({name: value})
    report = parse_rank_report(fields, TARGET, NOW)
    assert (report.process_restarts, report.step) == (0, None)
    assert fields.dropped == {name}


def test_null_is_what_a_program_reports_that_does_not_know_yet() -> None:
    fields = Fields({"secondsSinceStep": None, "step": None, "stack": None, "activity": None})
    assert parse_rank_report(fields, TARGET, NOW).step is None
    assert fields.dropped == set()


def test_of_a_stack_the_last_lines_are_kept_without_anything_that_moves_a_cursor() -> None:
    stack = "\n".join(f'  File "train.py", line {number}' for number in range(1000)) + "\x1b[2J\x9b1mend\u2028"
    report = parse_rank_report(Fields({"stack": stack}), TARGET, NOW)
    assert report.stack is not None
    assert 2000 < len(report.stack) <= 2048
    assert report.stack.startswith("…")
    assert report.stack.endswith("line 999end")
    assert "\x1b" not in report.stack


@pytest.mark.parametrize(
    "waiting",
    ["yes", [], {"reason": "Bored", "message": "m"}, {"reason": "NameNotResolved"}, {"reason": 1, "message": 2}],
)
def test_what_no_launcher_says_is_not_a_wait(waiting: Any) -> None:
    assert parse_wait(Fields({"waiting": waiting}), TARGET, NOW) is None


def test_why_a_node_waits_is_one_line() -> None:
    waiting = {"reason": "NameNotResolved", "message": "no\x1b]0;title\x07 name\nfor\u202e digits-0" + "x" * 400}
    wait = parse_wait(Fields({"waiting": waiting}), TARGET, NOW)
    assert wait is not None
    assert wait.message.startswith("no name for digits-0x")
    assert len(wait.message) == 256
