"""Answers in HTTP/1.0 and HTTP/1.1, read from bytes as they come; the owner of a connection passes them on.

Source: https://www.rfc-editor.org/rfc/rfc9112
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

LONGEST_HEAD: Final = 64 * 1024
"""Bytes of the headers of an answer."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_LONGEST_CHUNK_LINE: Final = 4096
_MOST_DIGITS: Final = 15
"""Of a number of bytes, in whichever base."""
_HEXADECIMAL: Final = frozenset(b"0123456789abcdefABCDEF")
_SWITCHING_PROTOCOLS: Final = 101
_WITHOUT_BODY: Final = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before the body of an answer."""

    status: int
    version: str
    """HTTP/1.0 or HTTP/1.1."""
    headers: Mapping[str, str]
    """By name in lower case."""

    @property
    def length(self) -> int | None:
        """Bytes of the body, None where it is not said.

        Raises:
            ValueError: it is not a number.
        """
        length = self.headers.get("content-length")
        if length is None:
            return None
        if not (length.isascii() and length.isdigit() and len(length) <= _MOST_DIGITS):
            raise ValueError(f"a length of {length[:80]!r}")
        return int(length)

    @property
    def coding(self) -> str:
        """How the body is divided: `identity`, or `chunked`."""
        return self.headers.get("transfer-encoding", "identity").lower()


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    head: Head
    body: bytes
    goes_on: bool
    """Whether the connection can take another request."""


def read_head(head: bytes) -> Head:
    """Status and headers, from the bytes before the empty line.

    Raises:
        ValueError: they are not those of an HTTP answer.
    """
    first, *rest = head.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    code = status[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == len("200")):
        raise ValueError(f"not an HTTP response: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in rest:
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if headers.setdefault(name, value) != value and name in ("content-length", "transfer-encoding"):
            raise ValueError(f"the header {name} twice: {headers[name][:80]!r} and {value[:80]!r}")
    return Head(int(code), version, headers)


class AnswerReader:
    """Reads one answer to a request other than HEAD. A method that raised must not be called again."""

    def __init__(self, most: int) -> None:
        """Args:
        most: bytes of the body, before and after it was unpacked.
        """
        self._most = most
        self._received = bytearray()
        self._body = bytearray()
        self._left = 0
        """Bytes of the body, or of a chunk with its end, that have not come yet."""
        self._chunked = False
        self._in_trailer = False
        self._trailer = 0
        """Bytes of what has come after the last chunk."""
        self.head: Head | None = None
        """Once it has come."""

    def feed(self, data: bytes) -> HttpAnswer | None:
        """The answer, None where it has not come to its end.

        Raises:
            ValueError: it is not an HTTP answer, or is too long.
        """
        self._received += data
        while self.head is None:
            if not self._read_head():
                return None
        if self._chunked:
            return self._whole() if self._read_chunks() else None
        if self.head.length is None and not self._is_empty:
            self._take(len(self._received))
            return None
        self._take(min(self._left, len(self._received)))
        return self._whole() if self._left == 0 else None

    def end(self) -> HttpAnswer | None:
        """The answer that ends with its connection, None where it has been cut off.

        Raises:
            ValueError: it cannot be unpacked.
        """
        if self.head is None or self._chunked or self.head.length is not None:
            return None
        return self._whole(ended=True)

    def _read_head(self) -> bool:
        end = self._received.find(_END_OF_HEAD)
        if (len(self._received) if end < 0 else end) > LONGEST_HEAD:
            raise ValueError("the headers are too long")
        if end < 0:
            return False
        head = read_head(bytes(self._received[:end]))
        del self._received[: end + len(_END_OF_HEAD)]
        if head.status < HTTPStatus.OK:
            # What comes before the answer, such as "go on" or hints.
            if head.status == _SWITCHING_PROTOCOLS:
                raise ValueError("a change of protocol that nobody asked for")
            return bool(self._received)
        self.head = head
        if head.coding not in ("identity", "chunked"):
            raise ValueError(f"a transfer encoding of {head.coding[:80]!r}")
        self._chunked = head.coding == "chunked" and not self._is_empty
        if head.coding == "chunked" and head.length is not None:
            raise ValueError("both a length and chunks")
        self._left = 0 if self._is_empty else head.length or 0
        self._limit(self._left)
        return True

    @property
    def _is_empty(self) -> bool:
        return self.head is not None and self.head.status in _WITHOUT_BODY

    def _read_chunks(self) -> bool:
        """Whether the last one has come."""
        while True:
            if self._left:
                came = min(self._left, len(self._received))
                # The last two bytes are the end of the line, not of the body.
                self._take(min(came, max(self._left - 2, 0)))
                if self._left > 2 or len(self._received) < self._left:  # noqa: PLR2004 these two
                    return False
                if self._received[: self._left] != b"\r\n"[-self._left :]:
                    raise ValueError("a chunk that is longer than was said")
                del self._received[: self._left]
                self._left = 0
            line = self._line()
            if line is None:
                return False
            if self._in_trailer:
                if not line:
                    return True
                self._trailer += len(line)
                if self._trailer > LONGEST_HEAD:
                    raise ValueError("what comes after the last chunk is too long")
                continue
            size = _size_of_chunk(line)
            self._limit(len(self._body) + size)
            self._in_trailer = size == 0
            self._left = size + 2 if size else 0

    def _line(self) -> bytes | None:
        end = self._received.find(b"\r\n")
        if (len(self._received) if end < 0 else end) > _LONGEST_CHUNK_LINE:
            raise ValueError("the line before a chunk is too long")
        if end < 0:
            return None
        line = bytes(self._received[:end])
        del self._received[: end + 2]
        return line

    def _take(self, count: int) -> None:
        self._limit(len(self._body) + count)
        self._body += self._received[:count]
        del self._received[:count]
        self._left -= min(count, self._left)

    def _limit(self, size: int) -> None:
        if size > self._most:
            raise ValueError(f"a body of more than {self._most} bytes")

    def _whole(self, *, ended: bool = False) -> HttpAnswer:
        assert self.head is not None  # noqa: S101 there is no body before it
        # What comes after the answer cannot belong to another request: none has been sent.
        keeps = not ended and not self._received and _is_kept(self.head)
        return HttpAnswer(self.head, self._unpacked(self.head), keeps)

    def _unpacked(self, head: Head) -> bytes:
        packing = head.headers.get("content-encoding", "identity").lower()
        if packing == "identity" or not self._body:
            return bytes(self._body)
        if packing not in ("gzip", "x-gzip"):
            raise ValueError(f"a content encoding of {packing[:80]!r}")
        unpacker = zlib.decompressobj(wbits=_GZIP)
        try:
            body = unpacker.decompress(bytes(self._body), self._most + 1)
        except zlib.error as error:
            raise ValueError(f"a body that cannot be unpacked: {error}") from error
        self._limit(len(body))
        if not unpacker.eof:
            raise ValueError("a packed body that does not end")
        return body


def _size_of_chunk(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > _MOST_DIGITS or not _HEXADECIMAL.issuperset(digits):
        raise ValueError(f"a chunk of {line[:80]!r} bytes")
    return int(digits, 16)


def _is_kept(head: Head) -> bool:
    said = {each.strip().lower() for each in head.headers.get("connection", "").split(",")}
    return "close" not in said and (head.version != "HTTP/1.0" or "keep-alive" in said)
