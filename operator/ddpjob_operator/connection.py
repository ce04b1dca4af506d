"""Address and credentials of the API server, shared by our own requests and kopf's."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config
from kubernetes.aio.config.config_exception import ConfigException

USER_AGENT: Final = "ddpjob-operator"
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

_log = logging.getLogger(__name__)


class RequestObserver(Protocol):
    """Called with each answer to a request of kopf's."""

    def __call__(self, method: str, path: str, query: str, code: int) -> None:
        """Args: method, URL path and query of the request, and the answer's HTTP status code."""


class Connection:
    """How the API server is reached. Rotated tokens are read again from their file or plugin."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._client: Any = ApiClient(configuration)
        self._client.user_agent = USER_AGENT

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
        _, url, headers, _, _ = await self._client.param_serialize(
            method, address, header_params={"Accept": accept}, auth_settings=["BearerToken"]
        )
        answer = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=limits
        )
        response: aiohttp.ClientResponse = answer.response
        return response

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
            headers: dict[str, str] = {}
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], "", params.method, None)
            params.headers.update(headers)

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
