import dataclasses
import sys
from pathlib import Path

import pytest

from hack.checks.stages import FAILURE, Stage, Tally, has_tests, read_results, run_stages, verdict
from hack.console import StepError

RESULTS = '<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10"/></testsuites>'


def test_pytests_results_are_counted() -> None:
    assert read_results(RESULTS) == Tally(passed=4, failed=3, skipped=3)


def test_the_closing_line_is_plain() -> None:
    assert Tally(12, 0).line() == "12 passed, 0 failed"
    assert Tally(12, 1, 2).line() == "12 passed, 1 failed, 2 skipped"


def test_no_collected_test_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(5, tmp_path / "none.xml") == FAILURE
    assert "collected no tests" in capsys.readouterr().out


def test_pytest_that_breaks_without_a_failed_test_is_a_failure(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text('<testsuites><testsuite errors="0" failures="0" skipped="0" tests="7"/></testsuites>')
    assert verdict(3, results) == Tally(passed=7, failed=1)
    assert verdict(4, tmp_path / "none.xml") == FAILURE
    assert verdict(0, results) == Tally(passed=7)


def test_a_folder_has_tests_once_a_file_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").touch()
    assert not has_tests(tmp_path)
    (tmp_path / "test_it.py").touch()
    assert has_tests(tmp_path)


def stages(ran: list[str]) -> list[Stage]:
    def stage(name: str, tally: Tally) -> Stage:
        def run() -> Tally:
            ran.append(name)
            return tally

        return Stage(name, run)

    return [stage("unit", Tally(5)), stage("torch", Tally(2, 1)), stage("kind", Tally(3))]


def test_a_failed_stage_ends_the_run_and_says_what_was_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []
    assert run_stages(stages(ran), keep_going=False) == Tally(7, 1)
    assert ran == ["unit", "torch"]
    assert "not run, since a stage failed: kind" in capsys.readouterr().out


def test_all_stages_run_where_asked_for() -> None:
    assert run_stages(stages([]), keep_going=True) == Tally(10, 1)


def test_a_set_up_that_fails_is_one_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Tally:
        raise StepError("node image failed after 3 s")

    assert run_stages([Stage("kind", broken)], keep_going=False) == FAILURE
    assert "node image failed" in capsys.readouterr().out


def with_the_next(said: str, ran: list[str]) -> tuple[list[Stage], list[str]]:
    held, *rest = stages(ran)
    return [dataclasses.replace(held, with_next=True), *rest], [sys.executable, "-c", f"print({said!r})"]


def test_a_stage_at_the_same_time_as_the_next_one_is_shown_and_counted_after_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []
    todo, command = with_the_next("a test says so\n\n7 passed, 0 failed, 1 skipped", ran)
    assert run_stages(todo, keep_going=True, command=lambda _: command) == Tally(12, 1, 1)
    assert ran == ["torch", "kind"], "in this process"
    said = capsys.readouterr().out
    assert said.index("== torch: 2 passed") < said.index("a test says so") < said.index("== unit: 7 passed, 0 failed, ")
    assert said.index("== unit: ") < said.index("== kind")


def test_a_stage_at_the_same_time_as_the_next_one_that_fails_or_breaks_ends_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []
    todo, command = with_the_next("Traceback", ran)
    todo[1] = Stage("apiserver", Tally)
    command[-1] += "; exit(3)"
    assert run_stages(todo, keep_going=False, command=lambda _: command) == FAILURE
    assert (ran, "Traceback" in capsys.readouterr().out) == ([], True)


def test_the_last_stage_has_nothing_to_run_with() -> None:
    ran: list[str] = []
    todo, command = with_the_next("nothing", ran)
    assert run_stages(todo[:1], keep_going=False, command=lambda _: command) == Tally(5)
    assert ran == ["unit"]
