"""What can become of an API request, as the reconciler needs to tell it apart."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any


class ApiFailure(Exception):  # noqa: N818 the domain's words (Conflict, NotFound, ...) say more than *Error
    """A request that did not succeed. `str()` is the API server's own message where it gave one."""


class Conflict(ApiFailure):
    """The object has changed since it was read, or is not the one (by uid) that was meant."""


class NotFound(ApiFailure):
    """The object, or its namespace, is not there."""


class AlreadyExists(ApiFailure):
    """The name is taken."""


class Invalid(ApiFailure):
    """The manifest is wrong: sending it again cannot help."""


class Forbidden(ApiFailure):
    """A quota, an admission webhook or a missing permission refused it: sending it again later may help."""


class Gone(ApiFailure):
    """The resource version is too old to watch or list from: list anew."""


class Retryable(ApiFailure):
    """The server or the network could not answer now. Whether a write took effect is unknown."""

    def __init__(self, message: str, after: float | None = None) -> None:
        """Args:
        message: what happened.
        after: seconds that the server asked to wait, None where it did not say.
        """
        super().__init__(message)
        self.after = after


class Fatal(ApiFailure):
    """An answer that no code here expects: a bug of ours, or no Kubernetes API on the other side."""


_RETRYABLE = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,  # the token is read again from its file before the next request
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    },
)


def failure_of(code: int, body: bytes, headers: Mapping[str, str]) -> ApiFailure:
    """The failure that an answer with an error code tells of."""
    status = _parse(body)
    return failure_of_status(code, status, retry_after(headers, status))


def failure_of_status(code: int, status: Mapping[str, Any], after: float | None = None) -> ApiFailure:
    """The failure in a `Status` object, such as a watch sends in an ERROR event.

    Args:
        code: the HTTP status code.
        status: the object.
        after: seconds that the server asked to wait.
    """
    message = str(status.get("message") or f"the API server answered {code}")
    if code in _RETRYABLE or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Retryable(message, after)
    if code == HTTPStatus.CONFLICT:
        return AlreadyExists(message) if status.get("reason") == "AlreadyExists" else Conflict(message)
    if code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
        # A webhook chooses its own code, and may change its mind when other objects change.
        return Forbidden(message) if message.startswith("admission webhook") else Invalid(message)
    plain: dict[int, type[ApiFailure]] = {
        HTTPStatus.NOT_FOUND: NotFound,
        HTTPStatus.FORBIDDEN: Forbidden,
        HTTPStatus.GONE: Gone,
    }
    kind = plain.get(code)
    return kind(message) if kind is not None else Fatal(f"{code}: {message}")


def retry_after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    """Seconds that the server asks to wait, from the header or from the Status' details."""
    details = status.get("details")
    wanted = headers.get("Retry-After") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        seconds = float(wanted) if wanted is not None else None
    except (TypeError, ValueError):
        return None  # the header's other form, a date, is not used by Kubernetes
    return None if seconds is None else min(max(seconds, 0.0), 60.0)


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
