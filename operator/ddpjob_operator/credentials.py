"""What a connection needs to know of an API server, wherever that comes from."""

import ssl
from collections.abc import Mapping
from typing import Protocol


class NoClusterError(Exception):
    """There is no API server to connect to, or no way to be known to it; the message says what is missing."""


class Credentials(Protocol):
    """Address of an API server, whom to trust, and how a request is signed."""

    @property
    def server(self) -> str:
        """Its URL, without a slash at the end."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """What an encrypted connection is made with."""

    @property
    def server_name(self) -> str | None:
        """The name that its certificate must have, None for that of the URL."""

    @property
    def proxy(self) -> str | None:
        """The proxy that leads to it, None for that of the environment."""

    @property
    def proxy_headers(self) -> Mapping[str, str] | None:
        """What the proxy is sent in addition."""

    async def signature(self, method: str) -> Mapping[str, str]:
        """The headers that sign a request, with the newest token."""

    async def close(self) -> None:
        """Release what it holds."""
