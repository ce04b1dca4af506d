"""How commands print: colours only on a terminal, plain text elsewhere, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ddpjob.views.text import Line, Tone
from ddpjob_core.api.crd import render
from ddpjob_core.api.errors import DDPJobError
from ddpjob_core.api.text import printable_line

STYLES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "red",
    Tone.DIM: "bright_black",
    Tone.TITLE: "bold",
}
_UNLIMITED: Final = 100_000


def console(*, stderr: bool = False) -> Console:
    """A console that prints the output of jobs unchanged, without interpreting markup or emoji codes."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    if not made.is_terminal:
        # A file or a pipe has no width at which to wrap long lines.
        made.width = _UNLIMITED
    return made


def print_lines(lines: Sequence[Line]) -> None:
    """Print lines, with their labels in a separate column."""
    out = console()
    width = max((len(line.label) for line in lines), default=0)
    for line in lines:
        label = f"{line.label:<{width}}  " if width and line.text and not line.full else ""
        out.print(Text.assemble((label, "bold" if line.label else ""), (line.text, STYLES[line.tone])))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table in the style of kubectl."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in head:
        made.add_column(title, no_wrap=True)
    for row in rows:
        made.add_row(*(plain(cell) for cell in row))
    return made


def plain(text: str, style: str = "") -> Text:
    """A text from outside as one line, without anything that acts on a terminal."""
    return Text(printable_line(text), style)


def as_json(value: object, *, indent: int | None = None) -> str:
    """A value as JSON. What is not printable is escaped: nothing is lost, and a terminal is not acted on."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


def _escaped(text: str) -> str:
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def print_json(value: object) -> None:
    """Print a value as JSON, for programs."""
    sys.stdout.write(as_json(value, indent=2) + "\n")


def manifests_text(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Objects as YAML documents for `kubectl apply -f -`."""
    return "---\n".join(render(dict(manifest)) for manifest in manifests)


def manifests_json(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Objects as a JSON List for `kubectl apply -f -`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, indent=2) + "\n"


def print_error(error: DDPJobError) -> None:
    """Print what is wrong and what to do, on standard error."""
    err = console(stderr=True)
    err.print(Text.assemble(("Error: ", "bold red"), plain(str(error))))
    if error.remedy:
        err.print(Text.assemble(("  -> ", "bold"), plain(error.remedy)))


def say(text: str) -> None:
    """Print a remark on standard error, away from what a program reads."""
    console(stderr=True).print(plain(text))
