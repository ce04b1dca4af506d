"""Requests to the API server in raw JSON, with every failure in words for the user."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from ddpjob.views.remedies import with_remedy
from ddpjob_core.api.answers import error_of_answer
from ddpjob_core.api.bounded_json import decode
from ddpjob_core.api.errors import Unavailable

Json: TypeAlias = dict[str, Any]

_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 30.0
_MERGE_PATCH: Final = "application/merge-patch+json"


class Transport:
    """One user's connection. Threads may share it."""

    def __init__(self, client: ApiClient, server: str) -> None:
        """Args:
        client: address and credentials.
        server: the API server's URL, for messages.
        """
        self._client: Any = client
        self._client.user_agent = "ddpjob"
        self.server = server

    def close(self) -> None:
        """Close all connections."""
        self._client.rest_client.close()

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
    ) -> Json:
        """The answer as JSON.

        Raises:
            ApiError: no answer came, or it is an error.
        """
        with self.open(method, path, query, body, silence=_ANSWER_SECONDS) as response:
            text = _read(response, self.server)
        try:
            answer = decode(text)
        except ValueError as error:
            raise Unavailable(
                f"{self.server} answered {method} {path} with something that is not JSON",
                "check that this is the address of a Kubernetes API server",
            ) from error
        return answer if isinstance(answer, dict) else {"items": answer}

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """The answer to a GET as text."""
        with self.open("GET", path, query, silence=_ANSWER_SECONDS) as response:
            return _read(response, self.server).decode(errors="replace")

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        *,
        silence: float | None,
    ) -> Generator[urllib3.HTTPResponse, None, None]:
        """The answer as a stream.

        Args:
            method: HTTP method.
            path: URL path.
            query: parameters.
            body: sent as JSON.
            silence: seconds without a byte after which the connection counts as lost, None for no limit.
        """
        headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = _MERGE_PATCH
        address = f"{path}?{urlencode(query)}" if query else path
        try:
            _, url, signed, _, _ = self._client.param_serialize(
                method, address, header_params=headers, auth_settings=["BearerToken"]
            )
            answer = self._client.rest_client.request(
                method, url, headers=signed, body=body, _request_timeout=(_CONNECT_SECONDS, silence)
            )
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise self._unreachable(error) from error
        response: urllib3.HTTPResponse = answer.response
        try:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                content = _read(response, self.server)
                raise with_remedy(error_of_answer(response.status, content, response.headers, f"{method} {path}"))
            yield response
        finally:
            # Closed, not reused: the rest of a stream must not be read.
            response.close()

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"the API server {self.server} cannot be reached: {_plain(error)}",
            "kubectl cluster-info shows whether it answers; --context and --kubeconfig choose another cluster",
        )


def _read(response: urllib3.HTTPResponse, server: str) -> bytes:
    try:
        return response.read() or b""
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the response from {server} was cut off: {_plain(error)}", "try again") from error


def _plain(error: Exception) -> str:
    """What the operating system says, which urllib3 wraps several times in texts with objects in them."""
    cause: BaseException = error
    while isinstance(inner := getattr(cause, "reason", None) or cause.__cause__, BaseException):
        cause = inner
    return str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
