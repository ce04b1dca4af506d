"""HTTP to the ranks of jobs, by aiohttp."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp

from ddpjob_core.engine.protocols import Answer


class AiohttpTransport:
    """A `Transport` over one session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, address: str, port: int, path: str, *, limit: int) -> Answer:
        """See `Transport.get`."""
        host = f"[{address}]" if ":" in address else address
        body = bytearray()
        try:
            async with self._session.get(f"http://{host}:{port}{path}", allow_redirects=False) as response:
                if response.status == HTTPStatus.OK:
                    async for chunk in response.content.iter_any():
                        body += chunk
                        if len(body) > limit:
                            break
                return Answer(response.status, bytes(body))
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error)) from error


@asynccontextmanager
async def open_transport() -> AsyncIterator[AiohttpTransport]:
    """A transport that keeps no connection and no cookie from one request to the next."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        # A compressed answer could grow beyond any limit while it is unpacked.
        auto_decompress=False,
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    ) as session:
        yield AiohttpTransport(session)
