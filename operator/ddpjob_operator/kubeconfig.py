"""The credentials of a kubeconfig, with all ways to sign that the client library knows."""

from collections.abc import Mapping
from typing import Any, Self

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config
from kubernetes.aio.config.config_exception import ConfigException

from ddpjob_operator.credentials import NoClusterError


class KubeConfig:
    """Credentials as the client library loads and renews them."""

    def __init__(self, configuration: Configuration) -> None:
        """Args:
        configuration: loaded.
        """
        self._configuration = configuration
        self._client: Any = ApiClient(configuration)
        self.server = str(configuration.host).rstrip("/")
        self.server_name: str | None = configuration.tls_server_name or None
        self.proxy: str | None = configuration.proxy or None
        self.proxy_headers: Mapping[str, str] | None = configuration.proxy_headers
        self.ssl_context = self._client.rest_client.ssl_context

    @classmethod
    async def load(cls, path: str) -> Self:
        """Those of a file, or of several with a colon in between.

        Raises:
            NoClusterError: it cannot be read, or lacks something.
        """
        configuration = Configuration()
        try:
            await load_kube_config(config_file=path, client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException as error:
            raise NoClusterError(str(error)) from error
        return cls(configuration)

    async def signature(self, method: str) -> Mapping[str, str]:
        """The headers that sign a request; a token that is renewed by a file or a plugin is the newest one."""
        signed: dict[str, str] = {}
        await self._client.update_params_for_auth(signed, [], ["BearerToken"], "", method, None)
        return signed

    async def close(self) -> None:
        """Release the client."""
        await self._client.close()
