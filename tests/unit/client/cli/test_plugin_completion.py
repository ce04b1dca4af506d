import subprocess
import sys
from pathlib import Path

import pytest

from ddpjob.cli.plugin_completion import Directive, directive

PROGRAM = Path(sys.executable).with_name("kubectl_complete-ddpjob")


def candidates(*words: str) -> tuple[list[str], str]:
    """What kubectl offers for words after `kubectl ddpjob`, and the directive."""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True)
    *lines, directive = done.stdout.splitlines()
    return [line.partition("\t")[0] for line in lines], directive


@pytest.mark.parametrize(
    ("words", "expected", "directive"),
    [
        (("sta",), ["status"], ":4"),
        (("status", "--kubeconfig", "/nonexistent", ""), [], ":4"),
        (("status", "-o", ""), ["text", "json"], ":4"),
        (("run", "trai"), [], ":0"),
    ],
)
def test_kubectl_completes_the_plugin(words: tuple[str, ...], expected: list[str], directive: str) -> None:
    assert candidates(*words) == (expected, directive)


def test_without_a_word_all_commands_are_offered_with_what_they_do() -> None:
    done = subprocess.run([PROGRAM, ""], capture_output=True, text=True, check=True)
    assert "why\tExplain a job" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("render", "-f", ""), Directive.DEFAULT),
        (("render", "--filename", ""), Directive.DEFAULT),
        (("run", ""), Directive.DEFAULT),
        (("run",), Directive.NO_FILE_COMPLETION),
        (("status", "--out"), Directive.NO_FILE_COMPLETION),
    ],
)
def test_files_are_offered_where_a_command_takes_one(words: tuple[str, ...], expected: Directive) -> None:
    assert directive(words) is expected
