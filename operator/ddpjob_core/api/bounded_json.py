"""JSON of the API server, whatever users have put into it: nesting ends no watch, and a LIST is read item by item."""

import gc
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ddpjob_core.api.extent import DEEPEST

_KEPT_LEVELS: Final = 3 * DEEPEST
"""Far more than anything that a job may hold, so that a job that holds more is recognized by it."""
_STRUCTURE: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_STRUCTURE_OF_BYTES: Final = re.compile(_STRUCTURE.pattern.encode(), re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN: Final = re.compile(rb'[^\s"\[\]{},:]+')
"""A number, true, false or null."""
_HEAD: Final = re.compile(rb'\{"\w+":')


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


def list_of(body: bytes, read: Callable[[bytes], Any] = decode) -> Iterator[tuple[str, Any]]:
    """The fields of a LIST's answer, those of `items` one by one: only one of them is in memory as objects at a time.

    Args:
        body: the answer.
        read: makes a value of its JSON; raises ValueError where it is none.

    Yields:
        Name of a field and its value; `items` comes once for each item.

    Raises:
        ValueError: it is not a JSON object.
    """
    text = _Text(body, read)
    text.take(b"{")
    while not text.comes(b"}"):
        name = text.value()
        text.take(b":")
        if name != "items" or not text.comes(b"["):
            yield str(name), text.value()
        else:
            head = text.head()
            while not text.comes(b"]"):
                yield "items", text.item(head)
                text.comes(b",")
        text.comes(b",")


class _Text:
    """A JSON text that is read from its beginning to its end, never decoded as a whole.

    As text it would take up to four times its bytes if there is one character beyond the first 65,536 in it.
    """

    def __init__(self, text: bytes, read: Callable[[bytes], Any]) -> None:
        self._text = text
        self._read = read
        self._at = 0
        self._skip()

    def comes(self, sign: bytes) -> bool:
        """Whether this sign is next, which is then read."""
        if not self._text.startswith(sign, self._at):
            return False
        self._at += 1
        self._skip()
        return True

    def take(self, sign: bytes) -> None:
        """Read this sign."""
        if not self.comes(sign):
            raise ValueError(f"expected {sign.decode()} at byte {self._at}")

    def head(self) -> bytes:
        """What the object that is next begins with, up to its first name; empty where there is none."""
        found = _HEAD.match(self._text, self._at)
        return found[0] if found else b""

    def item(self, head: bytes) -> Any:  # noqa: ANN401 any JSON value
        """Read an item of a list whose items begin like this.

        To find its end by its braces takes longer than to read it. So what stands before the next item's beginning is
        tried first: if that is JSON, it is the item, since no object is the beginning of another one.
        """
        following = self._text.find(b"}," + head, self._at) if head else -1
        end = (following if following >= 0 else self._text.rfind(b"}]")) + 1
        if head and end > self._at:
            try:
                value = self._read(self._text[self._at : end])
            except ValueError:
                return self.value()
            self._at = end
            self._skip()
            return value
        return self.value()

    def value(self) -> Any:  # noqa: ANN401 any JSON value
        """Read a value."""
        begun, self._at = self._at, self._end()
        value = self._read(self._text[begun : self._at])
        self._skip()
        return value

    def _end(self) -> int:
        """Where the value ends that is next."""
        plain = _PLAIN.match(self._text, self._at)
        if plain:
            return plain.end()
        depth = 0
        for match in _STRUCTURE_OF_BYTES.finditer(self._text, self._at):
            match self._text[match.start()]:
                case 0x5B | 0x7B:
                    depth += 1
                case 0x5D | 0x7D:
                    depth -= 1
            if depth <= 0:
                return match.end()
        raise ValueError(f"the value at byte {self._at} has no end")

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
