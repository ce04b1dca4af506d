"""JSON of the API server, whatever users have put into it: nesting ends no watch, and a LIST is read item by item."""

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ddpjob_core.api.extent import DEEPEST

_KEPT_LEVELS: Final = 3 * DEEPEST
"""Far more than anything that a job may hold, so that a job that holds more is recognized by it."""
_STRUCTURE: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


def decode(body: bytes) -> Any:  # noqa: ANN401 any JSON value
    """The value, without what is nested too deep for the parser: null stands there.

    Raises:
        ValueError: it is not JSON.
    """
    text = body.decode()
    with uncollected():
        try:
            return json.loads(text)
        except RecursionError:
            return json.loads(flattened(text))


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected meanwhile.

    JSON makes none, but each of its lists and objects counts: a hundred thousand of them made the collector look at
    all objects of the process many times, which took ten times as long as reading them.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def flattened(text: str) -> str:
    """The JSON text with null in place of every object and list that is nested too deep."""
    parts: list[str] = []
    depth, copied, begun = 0, 0, 0
    for match in _STRUCTURE.finditer(text):
        match text[match.start()]:
            case "[" | "{":
                depth += 1
                if depth == _KEPT_LEVELS + 1:
                    begun = match.start()
            case "]" | "}":
                if depth == _KEPT_LEVELS + 1:
                    parts += (text[copied:begun], "null")
                    copied = match.end()
                depth -= 1
    return "".join((*parts, text[copied:]))


def list_of(body: bytes) -> Iterator[tuple[str, Any]]:
    """The fields of a LIST's answer, those of `items` one by one: only one of them is in memory as objects at a time.

    Yields:
        Name of a field and its value; `items` comes once for each item.

    Raises:
        ValueError: it is not a JSON object.
    """
    text = _Text(body.decode())
    text.take("{")
    while not text.comes("}"):
        name = text.value()
        text.take(":")
        if name != "items" or not text.comes("["):
            yield str(name), text.value()
        else:
            while not text.comes("]"):
                yield "items", text.value()
                text.comes(",")
        text.comes(",")


class _Text:
    """A JSON text that is read from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip()

    def comes(self, sign: str) -> bool:
        """Whether this sign is next, which is then read."""
        if not self._text.startswith(sign, self._at):
            return False
        self._at += 1
        self._skip()
        return True

    def take(self, sign: str) -> None:
        """Read this sign."""
        if not self.comes(sign):
            raise ValueError(f"expected {sign} at character {self._at}")

    def value(self) -> Any:  # noqa: ANN401 any JSON value
        """Read a value."""
        with uncollected():
            try:
                value, self._at = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                # All that is too deep in the rest goes at once.
                self._text, self._at = flattened(self._text[self._at :]), 0
                value, self._at = _DECODER.raw_decode(self._text, self._at)
        self._skip()
        return value

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
