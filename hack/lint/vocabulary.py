"""Phrases that must not come back, each with what a reader expects instead."""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cache import ROOT


@dataclass(frozen=True)
class Phrase:
    """A phrase that is not wanted.

    Attributes:
        name: as it is read.
        instead: what to write.
        pattern: a regular expression for it, where the phrase alone says too little. A space stands for any space,
            the end of a line, and an underscore.
    """

    name: str
    instead: str
    pattern: str = ""

    @property
    def expression(self) -> re.Pattern[str]:
        """What finds it, as a whole word or words."""
        return re.compile(rf"(?<![A-Za-z0-9])(?:{self.pattern or re.escape(self.name)})(?![A-Za-z0-9])", re.IGNORECASE)


PHRASES: Final = (
    Phrase("is no X", "is not an X", r"(?<!there )is no (?!longer|more|way|need|such)\w+"),
    Phrase("are no X", "are not X, or must be X", r"(?<!there )are no (?!longer|more|such)\w+"),
    Phrase("is told", "is shown, reported or said", r"(?:is|are|was|were|be|been) told(?! to)"),
    Phrase("told by", "reported by, seen from"),
    Phrase("untold", "not reported"),
    Phrase("said here", "reported by this process"),
    Phrase("a whole number", "must be a whole number", r"(?<!must be )a whole number"),
    Phrase("brings along", "includes, ships with", r"(?:bring|brings|brought|bringing) along"),
    Phrase("in vain", "without effect, or the number of attempts"),
    Phrase("anew", "again"),
    Phrase("beside", "besides, next to or alongside"),
    Phrase("but for", "except"),
    Phrase("shall", "must, should or is to"),
    Phrase("whoever", "anyone who, or the one who"),
    Phrase("somebody", "someone, a user or another user"),
    Phrase("nobody that", "an unknown"),
    Phrase("else than", "other than"),
    Phrase("keeps this job", "blocks this job", r"keeps? (?:this|the|a) job(?! from)"),
    Phrase("coming to rest", "does not converge"),
    Phrase("what it is called", "its name", r"what (?:it|he|they) (?:is|are) called"),
    Phrase("brought nothing better", "no improvement in"),
    Phrase("graves", "tombstones"),
    Phrase("ripen", "promote"),
    Phrase("respecified", "spec_changed"),
    Phrase("Departed", "vanished"),
    Phrase("AttemptLeft", "AttemptAbandoned"),
    Phrase("StepsGoOn", "StepsResumed"),
)
# This table, and the words of others.
_FILES: Final = re.compile(r"\.(?:py|md|ya?ml|sh|toml|tpl|in|txt)$|(?:^|/)(?:Dockerfile|Makefile)$|\.Dockerfile$")
_NOT_READ: Final = ("hack/lint/vocabulary.py", "tests/unit/hack/lint/test_vocabulary.py")
ALLOWED: Final[Mapping[tuple[str, str], str]] = {}
"""Files in which a phrase may be, by its name, and why."""
# The end of a line within a comment, a list, a paragraph or a string that goes on in the next line.
_WRAP: Final = re.compile(r"""[ \t]*["']?[ \t]*\n\s*(?:\#\ ?|f?r?["'](?!["'])|\*\ |>\ )?|[ \t]+|_""", re.VERBOSE)


@dataclass(frozen=True)
class Found:
    """Where a phrase is."""

    phrase: Phrase
    file: str
    line: int
    text: str


def flat(text: str) -> tuple[str, list[int]]:
    """A text with one space for every gap between words, and for each of its characters the line that it is on."""
    parts: list[str] = []
    lines: list[int] = []
    line, end = 1, 0
    for gap in _WRAP.finditer(text):
        word = text[end : gap.start()]
        for character in word:
            lines.append(line)
            line += character == "\n"
        parts += [word, " "]
        lines.append(line)
        line += gap[0].count("\n")
        end = gap.end()
    parts.append(text[end:])
    lines += [line] * len(text[end:])
    return "".join(parts), lines


def occurrences(file: str, text: str, phrases: Iterable[Phrase] = PHRASES) -> Iterator[Found]:
    """Where phrases are in a file."""
    words, lines = flat(text)
    for phrase in phrases:
        if (file, phrase.name) not in ALLOWED:
            for match in phrase.expression.finditer(words):
                yield Found(phrase, file, lines[match.start()], match[0])


def read_files(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Names and texts of the files that people read, of those that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in sorted(set(listed)):
        if _FILES.search(name) and name not in _NOT_READ and (root / name).is_file():
            yield name, (root / name).read_text(encoding="utf-8")


def complaints(root: Path = ROOT) -> list[str]:
    """What to say of each phrase that is not wanted."""
    found = (one for name, text in read_files(root) for one in occurrences(name, text))
    return [f'{one.file}:{one.line}: "{one.text}": write {one.phrase.instead}' for one in found]
