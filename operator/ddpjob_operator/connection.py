"""Address and credentials of the API server, shared by our own requests and kopf's."""

import logging
import os
from collections.abc import Callable, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config
from kubernetes.aio.config.config_exception import ConfigException
from yarl import URL

from ddpjob_operator.encoding import encode

USER_AGENT: Final = "ddpjob-operator"
_READ_AHEAD: Final = 2**21
"""Bytes: events on large objects come in fewer pieces."""
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

_log = logging.getLogger(__name__)


class RequestObserver(Protocol):
    """Called with each answer to a request of kopf's."""

    def __call__(self, method: str, path: str, query: str, code: int) -> None:
        """Args: method, URL path and query of the request, and the answer's HTTP status code."""


class Connection:
    """How the API server is reached. Rotated tokens are read again from their file or plugin.

    Requests go through a session of its own. That of the client's library looks for proxies and for a .netrc in a
    thread at each request, and copies headers and body several times.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._client: Any = ApiClient(configuration)
        self._proxy = configuration.proxy or _proxy_for(self.server)
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._configuration.host).rstrip("/")

    async def request(
        self,
        method: str,
        address: str,
        body: dict[str, Any] | None,
        *,
        limits: aiohttp.ClientTimeout,
        accept: str = "application/json",
    ) -> aiohttp.ClientResponse:
        """Send a request; the caller releases the response.

        Args:
            method: HTTP method.
            address: URL path and query.
            body: sent as JSON.
            limits: how long it may take.
            accept: media type of the answer.
        """
        headers = {"Accept": accept, "Content-Type": "application/json"}
        await self._sign(headers, method)
        return await self._own_session().request(
            method,
            # As it is: it has been quoted where it had to be.
            URL(self.server + address, encoded=True),
            data=None if body is None else encode(body),
            headers=headers,
            timeout=limits,
            proxy=self._proxy,
            proxy_headers=self._configuration.proxy_headers,
            server_hostname=self._configuration.tls_server_name or None,
            allow_redirects=False,
        )

    def _own_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._client.rest_client.ssl_context),
                headers={"User-Agent": USER_AGENT},
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_AHEAD,
            )
        return self._session

    async def _sign(self, headers: MutableMapping[str, str], method: str) -> None:
        signed: dict[str, str] = {}
        await self._client.update_params_for_auth(signed, [], ["BearerToken"], "", method, None)
        headers.update(signed)

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
            await self._sign(params.headers, params.method)

        async def observe(_: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
            code = getattr(params.response, "code", None) or params.response.status
            observer(params.method, params.url.path, params.url.query_string, code)

        trace.on_request_start.append(sign)
        trace.on_request_end.append(observe)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._client.rest_client.ssl_context),
            headers={"User-Agent": f"{USER_AGENT}/kopf"},
            trace_configs=[trace],
            response_class=response_class,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        await self._client.close()


async def connect(path: str | None = None) -> Connection:
    """The cluster that KUBECONFIG names, else the one that this process runs in, else that of ~/.kube/config.

    Args:
        path: a kubeconfig to use instead of all these.

    Raises:
        ConfigException: none of them exists or can be read.
    """
    configuration = Configuration()
    # Each watch has a connection for itself. How many requests are in flight is limited elsewhere.
    configuration.connection_pool_maxsize = 0
    path = path or _configuration_file()
    if path is None:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        _log.info("using the service account of this pod at %s", configuration.host)
    else:
        await load_kube_config(config_file=path, client_configuration=configuration)  # type: ignore[no-untyped-call]
        _log.info("using %s at %s", path, configuration.host)
    return Connection(configuration)


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address, as for any other program."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.netloc):
        return None
    return getproxies().get(parts.scheme)


def _configuration_file() -> str | None:
    named = os.environ.get("KUBECONFIG")
    if not named and _TOKEN.exists():
        return None
    path = named or str(Path.home() / ".kube" / "config")
    if not any(Path(part).exists() for part in path.split(os.pathsep)):
        raise ConfigException(
            f"no cluster to connect to: {path} does not exist, and this process does not run in a pod"
        )
    return path
