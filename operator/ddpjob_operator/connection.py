"""Address and credentials of the API server, shared by our own requests and kopf's."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from ddpjob_core.engine.http_answer import Head, HttpAnswer
from ddpjob_operator.credentials import Credentials, NoClusterError
from ddpjob_operator.encoding import encode
from ddpjob_operator.exchange import Answering, Exchange, ExchangeError, Place
from ddpjob_operator.request_head import RequestHead
from ddpjob_operator.service_account import TOKEN, ServiceAccount

USER_AGENT: Final = "ddpjob-operator"
_REPEATABLE: Final = frozenset(("GET", "PUT", "DELETE"))
"""A request that may be sent twice: what it changes once cannot be changed by the second one."""
_READ_AHEAD: Final = 2**21
"""Bytes: events on large objects come in fewer pieces."""

_log = logging.getLogger(__name__)


class RequestObserver(Protocol):
    """Called with each answer to a request of kopf's."""

    def __call__(self, method: str, path: str, query: str, code: int) -> None:
        """Args: method, URL path and query of the request, and the answer's HTTP status code."""


class Connection:
    """How the API server is reached. Rotated tokens are read again from their file or plugin.

    What is answered at once goes through an exchange of its own; what is read bit by bit, and all that a proxy has to
    pass on, through a session of a general client. That of the client's library looks for proxies and for a .netrc in
    a thread at each request, and copies headers and body several times.
    """

    def __init__(self, credentials: Credentials) -> None:
        """Args:
        credentials: address and how to sign; closed with the connection.
        """
        self._credentials = credentials
        self.server = credentials.server
        """The API server's URL."""
        self._proxy = credentials.proxy or _proxy_for(self.server)
        self._session: aiohttp.ClientSession | None = None
        self._exchange = None if self._proxy else _exchange_with(self.server, credentials)
        self._head = RequestHead(self.server, USER_AGENT)

    async def ask(
        self,
        method: str,
        address: str,
        body: dict[str, Any] | None,
        *,
        seconds: float,
        most: int,
        answering: Answering = lambda _: None,
    ) -> HttpAnswer:
        """The whole answer to a request.

        Args:
            method: HTTP method.
            address: URL path and query.
            body: sent as JSON; that of a PATCH is merged into the object.
            seconds: how long it may take, from the connection to the last byte of the answer.
            most: bytes of the answer.
            answering: called with the answer's code when its headers have come.

        Raises:
            OSError: there is no connection, or no whole answer.
            TimeoutError: it took too long.
        """
        if self._exchange is None:
            return await self._ask_through_proxy(method, address, body, seconds, answering)
        signature = await self._credentials.signature(method)
        content = None if body is None else encode(body)
        request = self._head.request(method, address, signature, content)
        async with asyncio.timeout(seconds):
            repeatable = method in _REPEATABLE
            return await self._exchange.ask(request, most=most, repeatable=repeatable, answering=answering)

    async def _ask_through_proxy(
        self, method: str, address: str, body: dict[str, Any] | None, seconds: float, answering: Answering
    ) -> HttpAnswer:
        try:
            limits = aiohttp.ClientTimeout(total=seconds, sock_connect=5.0)
            async with await self.request(method, address, body, limits=limits) as response:
                answering(response.status)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return HttpAnswer(Head(response.status, "HTTP/1.1", headers), await response.read(), goes_on=False)
        except aiohttp.ClientError as error:
            raise ExchangeError(repr(error)) from error

    async def request(
        self,
        method: str,
        address: str,
        body: dict[str, Any] | None,
        *,
        limits: aiohttp.ClientTimeout,
        accept: str = "application/json",
    ) -> aiohttp.ClientResponse:
        """Send a request whose answer is read bit by bit; the caller releases the response.

        Args:
            method: HTTP method.
            address: URL path and query.
            body: sent as JSON; that of a PATCH is merged into the object.
            limits: how long it may take.
            accept: media type of the answer.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": accept, "Content-Type": kind}
        headers.update(await self._credentials.signature(method))
        return await self._own_session().request(
            method,
            # As it is: it has been quoted where it had to be.
            URL(self.server + address, encoded=True),
            data=None if body is None else encode(body),
            headers=headers,
            timeout=limits,
            proxy=self._proxy,
            proxy_headers=self._credentials.proxy_headers,
            server_hostname=self._credentials.server_name,
            allow_redirects=False,
        )

    def _own_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._credentials.ssl_context),
                headers={"User-Agent": USER_AGENT},
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_AHEAD,
            )
        return self._session

    def open_session(
        self,
        observer: RequestObserver,
        asked: Callable[[str], None],
        response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
    ) -> aiohttp.ClientSession:
        """A session for kopf with the same credentials, which follow a token's rotation too; the caller closes it.

        Args:
            observer: called with each answer.
            asked: called with the URL path of each request, whether it is answered or not.
            response_class: of the answers.
        """
        trace = aiohttp.TraceConfig()

        async def sign(_: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestStartParams) -> None:
            asked(params.url.path)
            params.headers.update(await self._credentials.signature(params.method))

        async def observe(_: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
            code = getattr(params.response, "code", None) or params.response.status
            observer(params.method, params.url.path, params.url.query_string, code)

        trace.on_request_start.append(sign)
        trace.on_request_end.append(observe)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._credentials.ssl_context),
            headers={"User-Agent": f"{USER_AGENT}/kopf"},
            trace_configs=[trace],
            response_class=response_class,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._exchange is not None:
            self._exchange.close()
        if self._session is not None:
            await self._session.close()
        await self._credentials.close()


async def connect(path: str | None = None) -> Connection:
    """The cluster that KUBECONFIG names, else the one that this process runs in, else that of ~/.kube/config.

    Args:
        path: a kubeconfig to use instead of all these.

    Raises:
        NoClusterError: none of them exists or can be read.
    """
    path = path or _configuration_file()
    if path is None:
        account = ServiceAccount(os.environ, time.monotonic)
        _log.info("using the service account of this pod at %s", account.server)
        return Connection(account)
    # In a pod it is never needed: see `service_account`.
    from ddpjob_operator.kubeconfig import KubeConfig  # noqa: PLC0415

    configuration = await KubeConfig.load(path)
    _log.info("using %s at %s", path, configuration.server)
    return Connection(configuration)


def _exchange_with(url: str, credentials: Credentials) -> Exchange | None:
    """Connections to a server, None where its URL asks for what they do not have."""
    parts = URL(url)
    if parts.scheme not in ("http", "https") or parts.raw_host is None or parts.port is None or parts.raw_user:
        return None
    context = credentials.ssl_context if parts.scheme == "https" else None
    return Exchange(Place(parts.raw_host, parts.port, context, credentials.server_name))


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address, as for any other program."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.netloc):
        return None
    return getproxies().get(parts.scheme)


def _configuration_file() -> str | None:
    named = os.environ.get("KUBECONFIG")
    if not named and TOKEN.exists():
        return None
    path = named or str(Path.home() / ".kube" / "config")
    if not any(Path(part).exists() for part in path.split(os.pathsep)):
        raise NoClusterError(f"no cluster to connect to: {path} does not exist, and this process does not run in a pod")
    return path
