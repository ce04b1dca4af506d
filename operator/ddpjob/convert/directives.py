"""The options in the comments of a job script: #PBS and #SBATCH."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_FLAGS: Final = frozenset(
    {"exclusive", "requeue", "no-requeue", "parsable", "hold", "contiguous", "overcommit", "O", "s", "V", "X", "I", "H"}
)


@dataclass(frozen=True, slots=True)
class Directive:
    """One option: its name without dashes, its value, and how it is written.

    Attributes:
        late: it comes after the first command, where the scheduler does not look.
    """

    line: int
    name: str
    value: str
    raw: str
    late: bool = False


def directives(text: str, marker: str) -> Iterator[Directive]:
    """The options of a script.

    Args:
        text: of the script.
        marker: how their lines start, such as #PBS.

    Raises:
        ValueError: a quote in one of them is not closed; the message names the line.
    """
    late = False
    for number, written in enumerate(text.splitlines(), 1):
        line = written.strip()
        match = re.match(rf"{re.escape(marker)}\s+(.*)", line)
        if match is None:
            late = late or bool(line and not line.startswith("#"))
            continue
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError as error:
            raise ValueError(f"{number}: {line}: {str(error).lower()}") from error
        for option in split_options(words, number):
            yield Directive(number, option.name, option.value, f"{marker} {option.raw}", late)


def split_options(words: Sequence[str], line: int) -> list[Directive]:
    """Options of any program, split without knowing what they are: -N 2, -N2, --nodes=2, --nodes 2, --exclusive."""
    found = []
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        name, equals, value = word.lstrip("-").partition("=")
        raw = word
        if not word.startswith("--") and word.startswith("-"):
            name, value = word[1:2], word[2:]
            equals = "=" if value else ""
        if not equals and name not in _FLAGS and following is not None and not _is_option(following):
            value, raw = following, f"{word} {following}"
            at += 1
        found.append(Directive(line, name, value, raw))
        at += 1
    return found


def _is_option(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None
