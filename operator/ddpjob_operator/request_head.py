"""The bytes of a request, of which most are the same each time."""

from collections.abc import Mapping
from typing import Final

from yarl import URL

_CONTROL: Final = frozenset(map(chr, range(32))) | {"\x7f"}


class RequestHead:
    """Makes requests to one server."""

    def __init__(self, server: str, agent: str) -> None:
        """Args:
        server: its URL, whose path comes before that of each request.
        agent: what this program is called.
        """
        url = URL(server)
        self._path = url.raw_path.rstrip("/").encode("ascii")
        self._common = (
            f"Host: {url.host_port_subcomponent or ''}\r\nUser-Agent: {agent}\r\nAccept: application/json\r\n"
            "Accept-Encoding: gzip\r\n"
        ).encode("ascii")
        self._signature: Mapping[str, str] = {}
        self._signed = b""

    def request(self, method: str, address: str, signature: Mapping[str, str], content: bytes | None) -> bytes:
        """All of a request.

        Args:
            method: HTTP method.
            address: URL path and query, quoted where that is needed.
            signature: headers that sign it.
            content: JSON that is sent; that of a PATCH is merged into the object.

        Raises:
            ValueError: the address or a header has a character that ends a line, or one that HTTP does not know.
        """
        if " " in address or not _CONTROL.isdisjoint(address):
            raise ValueError(f"not the path of a URL: {address[:200]!r}")
        if signature != self._signature:
            self._signed, self._signature = _lines_of(signature), dict(signature)
        target = address.encode("ascii")
        kind = b"application/merge-patch+json" if method == "PATCH" else b"application/json"
        head = b"%b %b%b HTTP/1.1\r\n%b%b" % (method.encode("ascii"), self._path, target, self._common, self._signed)
        if content is None:
            return head + b"\r\n"
        return b"%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (head, kind, len(content), content)


def _lines_of(headers: Mapping[str, str]) -> bytes:
    for name, value in headers.items():
        if not _CONTROL.isdisjoint(name) or not _CONTROL.isdisjoint(value):
            # Not its value, which may be a secret.
            raise ValueError(f"the header {name!r} has a character that ends a line")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
