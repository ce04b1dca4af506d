"""Variables of a script: their known values, and which parts of a word are unknown."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ddpjob.convert.arithmetic import evaluate
from ddpjob.convert.shell import Kind, Piece, UnreadableError, Word, pieces

_PARAMETER: Final = re.compile(
    r"(?P<length>#)?(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)", re.DOTALL
)
_DEFAULT: Final = re.compile(r":?[-=](.*)", re.DOTALL)
_HOSTS: Final = re.compile(
    r"PBS_NODEFILE|SLURM_(?:JOB_|STEP_)?NODELIST|LSB_HOSTS|scontrol\s+show\s+host|\bhostname\b|HOSTNAME|\bhostfile\b"
)
# Longer than any real argument; stops a variable that doubles itself.
_LONGEST: Final = 32768
_ALL: Final = ("@", "*")


@dataclass(frozen=True, slots=True)
class Text:
    """An expanded word; `unknown` are the names of what is not known, which is kept as written."""

    text: str
    line: int
    raw: str
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    """Variables for which a default of the script was used."""


@dataclass(frozen=True, slots=True)
class _Value:
    fields: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    hidden: bool = False
    """Nothing about it is known."""
    hosts: bool = False
    """It contains names of nodes."""

    @property
    def text(self) -> str:
        return " ".join(self.fields)


class Variables:
    """The variables of the part of a script that has been read."""

    def __init__(self, known: Mapping[str, str]) -> None:
        """Args:
        known: those that the scheduler sets, as far as they follow from the directives.
        """
        self._values = {name: _Value((value,)) for name, value in known.items()}
        self.exported: dict[str, int] = {}
        """Names of the variables that programs see, each with the line that exports it."""

    def expand(self, word: Word) -> list[Text]:
        """The words that a word expands to: none if it is empty, several if a variable contains several."""
        fields: list[str] = []
        current: str | None = None
        unknown: list[str] = []
        assumed: list[str] = []
        for piece in word.pieces:
            value = self._piece(piece)
            unknown += value.unknown
            assumed += value.assumed
            splits = piece.kind is Kind.VARIABLE and not piece.quoted and not value.hidden
            parts = tuple(value.text.split()) if splits else value.fields
            for index, part in enumerate(parts):
                if index and current is not None:
                    fields.append(current)
                    current = None
                current = (current or "") + part
        if current is not None:
            fields.append(current)
        raw = word.raw if len(fields) == 1 else None
        names, defaults = _once(unknown), _once(assumed)
        return [
            Text(field, word.line, raw or field, _standing(names, field) if raw is None else names, defaults)
            for field in fields
        ]

    def text(self, name: str) -> Text | None:
        """The value of a variable; None if the script does not set it, or nothing about it is known."""
        value = self._values.get(name)
        return None if value is None or value.hidden else Text(value.text, 0, value.text, value.unknown, value.assumed)

    def assign(self, name: str, word: Word, *, certain: bool, append: bool = False) -> bool:
        """Keep what NAME=... sets; whether it is certain that these are not names of nodes.

        Args:
            name: of the variable.
            word: the whole word, NAME=value.
            certain: False if the line may not be reached, or is reached several times.
            append: NAME+=...
        """
        value = self._array(word.items) if word.items is not None else self._right_side(word)
        if append:
            value = self._appended(name, value, array=word.items is not None)
        if not certain or sum(map(len, value.fields)) > _LONGEST:
            value = _Value((), (name,), hidden=True, hosts=value.hosts)
        self._values[name] = value
        return not value.hosts

    def hide(self, name: str) -> None:
        """Forget the value of a variable, such as that of a loop."""
        self._values[name] = _Value((), (name,), hidden=True)

    def number(self, name: str) -> int | None:
        """The integer value of a variable."""
        value = self._values.get(name)
        if value is None or value.hidden or value.unknown or not re.fullmatch(r"-?\d{1,18}", value.text):
            return None
        return int(value.text)

    def _array(self, items: Iterable[Word]) -> _Value:
        texts = [text for item in items for text in self.expand(item)]
        unknown = _once(name for text in texts for name in text.unknown)
        hosts = any(self._holds_hosts(name) for name in unknown) or any(_HOSTS.search(text.raw) for text in texts)
        return _Value(tuple(text.text for text in texts), unknown, hidden=bool(unknown) and hosts, hosts=hosts)

    def _right_side(self, word: Word) -> _Value:
        parts = [self._piece(piece) for piece in word.pieces]
        text = "".join(part.text for part in parts).partition("=")[2]
        unknown = _once(name for part in parts for name in part.unknown)
        assumed = _once(name for part in parts for name in part.assumed)
        if not unknown:
            return _Value((text,), (), assumed)
        hosts = any(self._holds_hosts(name) for name in unknown) or bool(_HOSTS.search(word.raw))
        written = any(piece.kind is Kind.LITERAL and piece.text for piece in word.pieces[1:])
        has_text = word.pieces[0].text.partition("=")[2] or written
        commands = any(piece.kind is Kind.SUBSTITUTION for piece in word.pieces)
        return _Value((text,), unknown, assumed, hidden=hosts or commands or not has_text, hosts=hosts)

    def _appended(self, name: str, value: _Value, *, array: bool) -> _Value:
        before = self._values.get(name, _Value(()))
        fields = (*before.fields, *value.fields) if array else (before.text + value.text,)
        unknown, hidden = _once((*before.unknown, *value.unknown)), before.hidden or value.hidden
        return _Value(fields, unknown, _once((*before.assumed, *value.assumed)), hidden, before.hosts or value.hosts)

    def _holds_hosts(self, name: str) -> bool:
        value = self._values.get(name)
        return bool(_HOSTS.fullmatch(name)) or (value is not None and value.hosts)

    def _piece(self, piece: Piece) -> _Value:
        match piece.kind:
            case Kind.LITERAL:
                return _Value((piece.text,))
            case Kind.VARIABLE:
                return self._parameter(piece)
            case Kind.ARITHMETIC:
                number = evaluate(piece.text, self.number)
                return _Value((str(number),)) if number is not None else _Value((piece.raw,), (piece.raw,))
            case Kind.SUBSTITUTION | Kind.PLACEHOLDER:
                return _Value((piece.raw,), (piece.raw,))

    def _parameter(self, piece: Piece) -> _Value:
        match = _PARAMETER.fullmatch(piece.text)
        if match is None:
            return _Value((piece.raw,), (piece.raw,))
        name, index, rest = match["name"], match["index"], match["rest"]
        value = self._values.get(name)
        absent = _Value((piece.raw,), (name,), hidden=True)
        default = _DEFAULT.fullmatch(rest)
        if value is None or value.hidden:
            return self._default(name, default[1]) if value is None and default and not match["length"] else absent
        if match["length"]:
            return _Value((str(len(value.fields)),)) if index in _ALL and not value.unknown else absent
        if rest and not default:
            return absent
        if index in _ALL:
            return value
        return self._element(value, index or "0") or absent

    def _element(self, value: _Value, index: str) -> _Value | None:
        number = evaluate(index, self.number)
        if number is None or not 0 <= number < len(value.fields):
            return None
        field = value.fields[number]
        return _Value((field,), _standing(value.unknown, field), value.assumed)

    def _default(self, name: str, text: str) -> _Value:
        try:
            parts = [self._piece(piece) for piece in pieces(text)]
        except UnreadableError:
            return _Value((f"${name}",), (name,))
        unknown = _once(part for value in parts for part in value.unknown)
        return _Value(("".join(part.text for part in parts),), unknown, (name,))


def _standing(names: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The names that occur in a text."""
    return tuple(name for name in names if name in text)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
