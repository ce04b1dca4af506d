"""Nothing that a program, an image or another controller writes acts on the terminal of who looks at a job."""

import json
from datetime import UTC, datetime

import pytest
from cli_jobs import FAILED, FAILURE, LATER, RUNNING, condition, job
from rich.console import Console

from ddpjob.cli.logs import _print
from ddpjob.cli.options import Format
from ddpjob.cli.output import print_error, print_json, print_lines, say, table
from ddpjob.cluster.logs import LogLine
from ddpjob.views.job import JobEvent
from ddpjob.views.status import TABLE_HEAD, job_row, status_lines
from ddpjob.views.story import story_lines, story_of
from ddpjob_core.api.errors import UsageProblem

ESC = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\x9b31m\x00\u202egnp.exe\u2066\x08\r"
HOSTILE = f"bad{ESC}end"


def harmless(shown: str) -> bool:
    return all(line.isprintable() for line in shown.split("\n")) and "52;c" not in shown


def logged(text: str) -> LogLine:
    return LogLine("2026-01-01T00:00:00Z", "digits-a0-0", 0, 0, "0", text)


def test_status_and_why_print_what_was_reported_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    waits = condition("Training", "False", HOSTILE, HOSTILE)
    failure = {**FAILURE, "message": HOSTILE, "traceback": f"{HOSTILE}\n  {HOSTILE}", "consequences": [HOSTILE]}
    status = {**FAILED, "failure": failure, "summary": {**RUNNING["summary"], "loss": HOSTILE}, "conditions": [waits]}
    shown = job(**status)
    print_lines(status_lines(shown, LATER))
    event = JobEvent(datetime(2026, 1, 1, tzinfo=UTC), "Warning", "Restarting", HOSTILE)
    print_lines(story_lines(story_of(shown, [event], [], LATER)))
    printed = capsys.readouterr().out
    assert "bad" in printed
    assert harmless(printed)


def test_tables_remarks_and_errors_print_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Console().print(table(TABLE_HEAD, [tuple(HOSTILE for _ in job_row(job(**RUNNING), LATER))]))
    say(HOSTILE)
    print_error(UsageProblem(HOSTILE, HOSTILE))
    printed = capsys.readouterr()
    assert "badg" in printed.out
    assert harmless(printed.out)
    assert harmless(printed.err)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", "plain"),
        ("\tindented  text", "        indented  text"),
        (" 10%|#\r 50%|##\r100%|###\r", "100%|###"),
        ("\x1b[32mgreen\x1b[0m", "green"),
        (HOSTILE, "end"),
    ],
)
def test_a_line_of_a_log_is_shown_as_a_terminal_shows_it(
    written: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _print([logged(written)], 1, Format.TEXT) == 1
    assert capsys.readouterr().out == f"{shown}\n"


def test_json_for_programs_loses_nothing_and_escapes_what_acts_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = HOSTILE + "\U000e0041 é🙂\u2028"
    print_json({"text": text})
    _print([logged(text)], 1, Format.JSON)
    printed = capsys.readouterr().out
    assert harmless(printed.replace("52;c", ""))
    assert "é🙂" in printed
    whole, _, line = printed.rstrip("\n").rpartition("\n")
    assert json.loads(whole) == {"text": text}
    assert json.loads(line)["text"] == text
