"""The service account of the pod that this process runs in.

Read here and not with the client library, which is a seventh of the start of the operator and 10 MB of its memory,
most of it for other ways to be known to an API server.
Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ddpjob_operator.credentials import NoClusterError

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN: Final = FOLDER / "token"
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"
_READ_EVERY: Final = 60.0
"""Seconds: the kubelet replaces a token long before it expires."""

_log = logging.getLogger(__name__)


def namespace_of_pod(folder: Path = FOLDER) -> str | None:
    """The namespace of the pod that this process runs in, None outside of a pod.

    Args:
        folder: that of the service account.
    """
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


class ServiceAccount:
    """Credentials from the files that the kubelet keeps current."""

    server_name = None
    proxy = None
    proxy_headers = None

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float], folder: Path = FOLDER) -> None:
        """Args:
            environment: has the address.
            clock: monotonic seconds.
            folder: has the token and the certificate of whom to trust.

        Raises:
            NoClusterError: something of it is missing, empty or unreadable.
        """
        host, port = environment.get(_HOST), environment.get(_PORT)
        if not host or not port:
            raise NoClusterError(f"{_HOST} and {_PORT} are not both set, as they are in every pod")
        self.server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._clock = clock
        self._file = folder / TOKEN.name
        certificate = folder / "ca.crt"
        try:
            self._token = self._read()
            self.ssl_context = ssl.create_default_context(cafile=str(certificate))
        except ssl.SSLError as error:
            raise NoClusterError(f"{certificate} is not a certificate: {error}") from error
        except (OSError, ValueError) as error:
            raise NoClusterError(f"the service account of this pod cannot be read: {error}") from error
        self._read_at = clock()

    async def signature(self, _: str) -> Mapping[str, str]:
        """The header with the newest token."""
        now = self._clock()
        if now - self._read_at >= _READ_EVERY:
            self._read_at = now
            try:
                self._token = self._read()
            except (OSError, ValueError) as error:
                # The old one is valid for a while yet.
                _log.warning("the token cannot be read again: %s", error)
        return {"Authorization": f"Bearer {self._token}"}

    async def close(self) -> None:
        """Nothing is held."""

    def _read(self) -> str:
        token = self._file.read_text(encoding="ascii").strip()
        if not token:
            raise ValueError(f"{self._file} is empty")
        return token
