"""The options before a program, read by argparse, each with the words that it came from."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ddpjob.convert.variables import Text

_END: Final = "--"


class OptionError(Exception):
    """The options cannot be read; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Given:
    """An option that was given: `name` is its first long spelling without dashes, `raw` how it was written."""

    name: str
    value: str
    line: int
    raw: str
    unknown: tuple[str, ...]
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A launch line taken apart: options, and the words from the program on."""

    options: tuple[Given, ...]
    rest: tuple[Text, ...]

    def last(self, *names: str) -> Given | None:
        """The last option with one of these names, which wins, as in the launchers."""
        return next((option for option in reversed(self.options) if option.name in names), None)

    def all(self, name: str) -> list[Given]:
        """All options with a name, in order."""
        return [option for option in self.options if option.name == name]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a launcher.

    Attributes:
        spellings: with leading dashes; a dash inside may also be written as an underscore.
        values: how many words follow it.
        pair: it takes NAME=VALUE as one word, or NAME and VALUE as two, which are read as if they were one.
    """

    spellings: tuple[str, ...]
    values: int = 1
    pair: bool = False

    @property
    def name(self) -> str:
        """Its first long spelling without dashes."""
        return next((each for each in self.spellings if each.startswith("--")), self.spellings[0]).lstrip("-")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


class _Keep(argparse.Action):
    """Keeps every option in order, with the spelling that was used."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 as in the base class
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 as in the base class
        option_string: str | None = None,
    ) -> None:
        """Keep one."""
        listed = values if isinstance(values, list) else [] if values is None else [values]
        namespace.given.append((self.dest, option_string or "", [str(value) for value in listed]))


class Options:
    """The options of a launcher."""

    def __init__(self, program: str, options: Iterable[Option]) -> None:
        """Args:
        program: the launcher's name.
        options: all of them.
        """
        self._parser = _Parser(prog=program, add_help=False, allow_abbrev=False)
        self._values: dict[str, int] = {}
        self._pairs: set[str] = set()
        for option in options:
            spellings = _spellings(option)
            self._pairs.update(spellings if option.pair else ())
            self._parser.add_argument(*spellings, dest=option.name, nargs=option.values, action=_Keep, default=None)
            self._values.update(dict.fromkeys(spellings, option.values))

    def read(self, words: Sequence[Text]) -> Line:
        """Split the words after the launcher's name into options and program.

        Raises:
            OptionError: an option is unknown, or has no value.
        """
        words = self._joined(words)
        end = self._end(words)
        head = words[:end]
        found = argparse.Namespace(given=[])
        # argparse does not get the words after the program, where it would look for options too.
        self._parser.parse_args([word.text for word in head if word.text != _END], found)
        return Line(tuple(_located(found.given, head)), tuple(words[end:]))

    def _joined(self, words: Sequence[Text]) -> list[Text]:
        """The words, with a pair of two words before the program made one."""
        joined, at = list(words), 0
        while self._is_option(joined, at):
            if joined[at].text in self._pairs and at + 2 < len(joined) and "=" not in joined[at + 1].text:
                joined[at + 1 : at + 3] = [_pair(joined[at + 1], joined[at + 2])]
            at += 1 + self._values.get(joined[at].text, 0)
        return joined

    def _is_option(self, words: Sequence[Text], at: int) -> bool:
        return at < len(words) and words[at].text.startswith("-") and words[at].text != _END

    def _end(self, words: Sequence[Text]) -> int:
        """The position at which the options end and the program starts."""
        at = 0
        while self._is_option(words, at):
            # --name=value and -r3 contain their values.
            at += 1 + self._values.get(words[at].text, 0)
        if at < len(words) and words[at].text == _END:
            return at + 1
        return min(at, len(words))


def _pair(name: Text, value: Text) -> Text:
    return Text(
        f"{name.text}={value.text}",
        name.line,
        f"{name.raw} {value.raw}",
        (*name.unknown, *value.unknown),
        (*name.assumed, *value.assumed),
    )


def _spellings(option: Option) -> list[str]:
    both = [
        (each, f"--{each[2:].replace('-', '_')}") if each.startswith("--") else (each,) for each in option.spellings
    ]
    return list(dict.fromkeys(spelling for pair in both for spelling in pair))


def _located(given: Iterable[tuple[str, str, list[str]]], words: Sequence[Text]) -> Iterable[Given]:
    """Each option with the words that it came from, which are in the same order."""
    at = 0
    for name, spelling, values in given:
        while at < len(words) and not words[at].text.startswith(spelling):
            at += 1
        # --name value takes one more word per value, --name=value none.
        count = 1 + len(values) if at < len(words) and words[at].text == spelling else 1
        own = words[at : at + count]
        at += count
        yield Given(
            name,
            " ".join(values),
            own[0].line if own else 0,
            " ".join(word.raw for word in own),
            tuple(dict.fromkeys(unknown for word in own for unknown in word.unknown)),
            tuple(dict.fromkeys(name for word in own for name in word.assumed)),
        )
