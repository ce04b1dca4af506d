"""Completion of `kubectl ddpjob`, as kubectl asks a plugin for it.

kubectl runs `kubectl_complete-ddpjob` with the words after `kubectl ddpjob`. The last word is to be completed.
kubectl reads one candidate per line, each with a help text after a tab, and at the end `:` with a directive
(https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/). Typer answers the fish shell in the same format.
"""

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from ddpjob.cli.entry import main as ddpjob

_TAKES_A_FILE: Final = ("-f", "--filename")


class Directive(IntEnum):
    """What the shell does with the candidates (cobra's ShellCompDirective)."""

    DEFAULT = 0
    """Offer files if there is no candidate."""
    NO_FILE_COMPLETION = 4


def question(words: Sequence[str]) -> dict[str, str]:
    """The environment variables with which Typer prints candidates.

    Args:
        words: those after `kubectl ddpjob`; the last one is incomplete, perhaps empty.
    """
    *before, incomplete = words or ("",)
    return {
        "_DDPJOB_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": f"{shlex.join(['ddpjob', *before])} {shlex.quote(incomplete) if incomplete else ''}",
    }


def directive(words: Sequence[str]) -> Directive:
    """Whether files are candidates too: `run` accepts a script, -f a manifest."""
    before = words[:-1]
    file = before and (before[-1] in _TAKES_A_FILE or before[0] == "run")
    return Directive.DEFAULT if file else Directive.NO_FILE_COMPLETION


def main() -> None:
    """Answer kubectl."""
    words = sys.argv[1:]
    os.environ.update(question(words))
    sys.argv[:] = ["ddpjob"]
    candidates = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(candidates):
        ddpjob()
    # If Typer has no candidate, it prints an empty line, which kubectl would take for one.
    lines = [line for line in candidates.getvalue().splitlines() if line]
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, f":{int(directive(words))}"]))
