"""Splits a shell script into commands and words, without running it.

Quotes and backslashes are resolved here; `variables` expands `$`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_BLANK: Final = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_SEPARATOR: Final = re.compile(r";;|&&|\|\||[;|&()\n]")
_REDIRECTION: Final = re.compile(r"\d*(?:&>>?|>>&?|>&|>\||>|<<<|<<-?|<&|<)")
_PLACEHOLDER: Final = re.compile(r"<[A-Za-z_][\w.-]*>")
_PLAIN: Final = re.compile(r"[^\s'\"\\$`;|&()<>]+")
_PLAIN_IN_QUOTES: Final = re.compile(r"[^\"\\$`]+")
_NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ARRAY: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_ESCAPED_IN_QUOTES: Final = '$`"\\\n'


class Kind(Enum):
    """What a piece of a word is."""

    LITERAL = auto()
    VARIABLE = auto()
    """`$NAME`, or the inside of `${...}`."""
    ARITHMETIC = auto()
    SUBSTITUTION = auto()
    """The output of a command."""
    PLACEHOLDER = auto()
    """`<number_of_nodes>`, as in manuals."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word; `raw` is how it is written."""

    kind: Kind
    text: str
    raw: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command; `items` are those of NAME=(...)."""

    line: int
    raw: str
    pieces: tuple[Piece, ...]
    items: "tuple[Word, ...] | None" = None


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, and where its output goes."""

    line: int
    raw: str
    words: tuple[Word, ...]
    redirections: tuple[str, ...] = ()


class UnreadableError(Exception):
    """The text is not a shell script: `str()` says why, `line` where."""

    def __init__(self, line: int, message: str) -> None:
        """Args:
        line: where the problem starts.
        message: what is wrong.
        """
        super().__init__(message)
        self.line = line


def commands(text: str, line: int = 1) -> list[Command]:
    """The simple commands of a script in order, with keywords as words.

    Args:
        text: of the script.
        line: number of its first line.

    Raises:
        UnreadableError: a quote or a bracket is not closed.
    """
    return list(_Scanner(text, line).commands())


def pieces(text: str, line: int = 1) -> tuple[Piece, ...]:
    """The pieces of a text that is read as if it were in double quotes, such as the default in ${NAME:-default}.

    Raises:
        UnreadableError: a bracket is not closed.
    """
    return tuple(_Scanner(text, line).in_quotes(to_the_end=True))


class _Scanner:
    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._at = 0
        self._first = line
        self._here_documents: list[tuple[str, bool]] = []

    @property
    def _line(self) -> int:
        return self._first + self._text.count("\n", 0, self._at)

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _next(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def commands(self) -> Iterator[Command]:
        words: list[Word] = []
        redirections: list[str] = []
        start = self._at
        while self._at < len(self._text):
            if self._take(_BLANK) or self._take(_COMMENT):
                continue
            start = start if words else self._at
            end = self._at
            if self._next(2) != "&>" and (separator := self._take(_SEPARATOR)):
                if words:
                    yield Command(words[0].line, self._text[start:end].strip(), tuple(words), tuple(redirections))
                words, redirections = [], []
                if separator == "\n":
                    self._skip_here_documents()
            elif redirection := self._redirection():
                redirections.append(redirection)
            else:
                words.append(self._word())
        if words:
            yield Command(words[0].line, self._text[start:].strip(), tuple(words), tuple(redirections))

    def _redirection(self) -> str | None:
        start = self._at
        if _PLACEHOLDER.match(self._text, self._at):
            return None
        operator = self._take(_REDIRECTION)
        if operator is None:
            return None
        self._take(_BLANK)
        target = self._word()
        if "<<" in operator and not operator.endswith("<<<"):
            self._here_documents.append((re.sub(r"[\"'\\]", "", target.raw), operator.endswith("-")))
        return self._text[start : self._at]

    def _skip_here_documents(self) -> None:
        for end, indented in self._here_documents:
            tabs = r"\t*" if indented else ""
            closing = re.compile(rf"^{tabs}{re.escape(end)}[ \r]*$", re.MULTILINE).search(self._text, self._at)
            self._at = closing.end() if closing else len(self._text)
        self._here_documents = []

    def _word(self) -> Word:
        start, line = self._at, self._line
        found: list[Piece] = []
        items: tuple[Word, ...] | None = None
        while self._at < len(self._text):
            char = self._next()
            if char == "(" and found and _ARRAY.fullmatch(self._text[start : self._at]):
                items = self._array()
            elif placeholder := self._take(_PLACEHOLDER):
                found.append(Piece(Kind.PLACEHOLDER, placeholder, placeholder, quoted=True))
            elif char in " \t\r\n;|&()<>":
                break
            else:
                found += self._part(char)
        return Word(line, self._text[start : self._at], tuple(found), items)

    def _part(self, char: str) -> list[Piece]:
        """The part of a word that starts with a character."""
        if char == '"' or self._next(2) == '$"':
            return self._double_quoted()
        if char == "'" or self._next(2) == "$'":
            return [self._single_quoted()]
        if char in "$`":
            return [self._dollar(quoted=False)]
        if char == "\\":
            return self._escaped()
        text = self._take(_PLAIN) or ""
        return [Piece(Kind.LITERAL, text, text)]

    def _array(self) -> tuple[Word, ...]:
        inner = self._matching("(", ")")
        line = self._line - inner.count("\n")
        return tuple(word for command in _Scanner(inner, line).commands() for word in command.words)

    def _escaped(self) -> list[Piece]:
        raw = self._next(2)
        self._at += 2
        return [] if raw == "\\\n" else [Piece(Kind.LITERAL, raw[1:], raw, quoted=True)]

    def _single_quoted(self) -> Piece:
        start = self._at
        opening = self._text.index("'", start)
        closing = self._text.find("'", opening + 1)
        if closing < 0:
            raise UnreadableError(self._line, "the quote ' is not closed")
        self._at = closing + 1
        return Piece(Kind.LITERAL, self._text[opening + 1 : closing], self._text[start : self._at], quoted=True)

    def _double_quoted(self) -> list[Piece]:
        line = self._line
        self._at = self._text.index('"', self._at) + 1
        # An empty text in quotes is still a word.
        found = [Piece(Kind.LITERAL, "", "", quoted=True), *self.in_quotes(to_the_end=False)]
        if self._next() != '"':
            raise UnreadableError(line, 'the quote " is not closed')
        self._at += 1
        return found

    def in_quotes(self, *, to_the_end: bool) -> Iterator[Piece]:
        while self._at < len(self._text):
            char = self._next()
            if char == '"' and not to_the_end:
                return
            if char in "$`":
                yield self._dollar(quoted=True)
            elif char == "\\" and self._next(2)[1:] in _ESCAPED_IN_QUOTES:
                yield from self._escaped()
            else:
                start = self._at
                self._at += 1
                self._take(_PLAIN_IN_QUOTES)
                text = self._text[start : self._at]
                yield Piece(Kind.LITERAL, text, text, quoted=True)

    def _dollar(self, *, quoted: bool) -> Piece:
        start = self._at
        if self._next() == "`":
            closing = self._text.find("`", start + 1)
            if closing < 0:
                raise UnreadableError(self._line, "the quote ` is not closed")
            self._at = closing + 1
            kind, text = Kind.SUBSTITUTION, self._text[start + 1 : closing]
        else:
            self._at += 1
            kind, text = self._named()
        return Piece(kind, text, self._text[start : self._at], quoted)

    def _named(self) -> tuple[Kind, str]:
        """What follows a `$`."""
        if self._next() == "{":
            return Kind.VARIABLE, self._matching("{", "}")
        if self._next() == "(":
            inner = self._matching("(", ")")
            if inner.startswith("(") and inner.endswith(")"):
                return Kind.ARITHMETIC, inner[1:-1]
            return Kind.SUBSTITUTION, inner
        name = self._take(_NAME)
        return (Kind.VARIABLE, name) if name else (Kind.LITERAL, "$")

    def _matching(self, opening: str, closing: str) -> str:
        """The text between a bracket here and the one that closes it."""
        start, line, depth, quote = self._at + 1, self._line, 0, ""
        while self._at < len(self._text):
            char = self._next()
            self._at += 2 if char == "\\" else 1
            if quote or char in "'\"":
                quote = "" if char == quote else quote or char
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    return self._text[start : self._at - 1]
        raise UnreadableError(line, f"the bracket {opening} is not closed")
