"""The report fits into a termination message, and the operator reads what was written."""

import json
from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.wire.report import parse_report
from ddpjob_launcher.report import Failure, encode_report

texts = st.one_of(st.text(), st.text(min_size=900), st.text(alphabet='\x00\n"\\é語\U0001f525\ud800', max_size=5000))
failures = st.fixed_dictionaries(
    {
        "rank": st.integers(0, 10**6),
        "local_rank": st.integers(0, 255),
        "exit_code": st.integers(1, 255),
        "time": st.floats(0, 4e9),
        "message": texts,
    },
    optional={"traceback": texts},
)
progress = st.none() | st.dictionaries(st.text(max_size=30), st.integers() | st.floats() | st.text(max_size=300))


@given(st.integers(0, 255), st.lists(failures, max_size=12), texts, progress)
def test_a_report_never_exceeds_its_size_and_can_always_be_read(
    code: int, ends: list[dict[str, Any]], message: str, reached: dict[str, Any] | None
) -> None:
    failed = [Failure(**end) for end in ends]
    report = encode_report(code, failed, message, reached, restarts=3, stopped=True, group=(1, 4))
    assert len(report) <= 2048
    assert b"\n" not in report
    parsed = parse_report(report.decode("utf-8"))
    assert parsed is not None
    assert json.loads(report)["exitCode"] == code
    assert (parsed.process_restarts, parsed.stopped) == (3, True)
    assert (parsed.group_size, parsed.job_size) == (1, 4)
    if ends:
        first = parsed.failures[0]
        assert (first.rank, first.local_rank, first.exit_code) == (
            ends[0]["rank"],
            ends[0]["local_rank"],
            ends[0]["exit_code"],
        )


def test_a_long_traceback_keeps_its_end_and_stands_after_code_and_message() -> None:
    traceback = "Traceback\n" + "é" * 5000 + "\nValueError: the end"
    report = encode_report(1, [Failure("ValueError: bad", 5.0, rank=3, exit_code=7, traceback=traceback)])
    assert 2040 <= len(report) <= 2048
    text = report.decode("utf-8")
    assert text.index('"exitCode"') < text.index('"message"') < text.index('"traceback"')
    assert json.loads(report)["failures"][0]["traceback"].endswith("é\nValueError: the end")


def test_many_failures_leave_room_for_the_first_ones_message() -> None:
    ends = [Failure(f"rank {rank} " + "x" * 1000, 5.0, rank=rank, exit_code=1) for rank in range(64)]
    first, second, *_ = json.loads(encode_report(1, ends, "", {"step": 3}))["failures"]
    assert len(first["message"]) > 500
    assert second["message"].startswith("rank 1 x")


def test_the_operator_reads_all_that_a_failure_has() -> None:
    failure = Failure(
        "ValueError: bad",
        5.5,
        rank=3,
        local_rank=1,
        exit_code=7,
        signal="SIGKILL",
        error_type="ValueError",
        traceback="Traceback",
        oom=True,
        permanent=True,
    )
    report = parse_report(encode_report(7, [failure]).decode())
    assert report is not None
    assert [asdict(each) for each in report.failures] == [asdict(failure)]
