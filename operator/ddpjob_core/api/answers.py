"""What an answer of the API server with an error code means: the one mapping from HTTP to errors."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from ddpjob_core.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
    Unexpected,
    WebhookFailed,
)
from ddpjob_core.api.text import one_line

_LONGEST_WAIT: Final = 60.0
_LONGEST_TEXT: Final = 300
_LONGEST_MESSAGE: Final = 4096
_BY_ADMISSION: Final = re.compile(r'admission webhook "|\S+ "[^"]*" is forbidden: ')
"""How the message begins if an admission webhook, policy or plugin denies a request, each with a code of its own choice.

The object may be well-formed all the same, and be admitted once the policy or other objects have changed."""
_FAILED_WEBHOOK: Final = "failed calling webhook"
_UNKNOWN_FIELD: Final = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_PLAIN: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.GONE: Expired,
}


def error_of_answer(code: int, body: bytes, headers: Mapping[str, str], request: str) -> ApiError:
    """The error for a response with an error code.

    Args:
        code: HTTP status code.
        body: a `Status` object where the answer comes from the API server itself.
        headers: of the answer.
        request: method and path, for an answer without a message.
    """
    status = _parse(body)
    if not status.get("message"):
        status = {**status, "message": _without_message(code, body, request)}
    return error_of_status(code, status, _retry_after(headers, status))


def error_of_status(code: int, status: Mapping[str, Any], after: float | None = None) -> ApiError:
    """The error in a `Status` object, such as a watch sends in an ERROR event.

    Args:
        code: HTTP status code.
        status: the object.
        after: seconds that the server asked to wait.
    """
    # It may quote what users have written, and an admission webhook may say anything.
    message = one_line(str(status.get("message") or ""), _LONGEST_MESSAGE)
    message = message or f"the API server answered {code} {_phrase(code)}"
    if _BY_ADMISSION.match(message):
        return Forbidden(message)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT):
        return _unavailable(message, after)
    if code == HTTPStatus.UNAUTHORIZED:
        return Unauthorized(f"the API server does not accept the credentials: {message}")
    if code == HTTPStatus.CONFLICT:
        return AlreadyExists(message) if status.get("reason") == "AlreadyExists" else Conflict(message)
    if code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
        return _refused(status, message)
    return _PLAIN.get(code, Unexpected)(message)


def _unavailable(message: str, after: float | None) -> ApiError:
    if _FAILED_WEBHOOK in message:
        return WebhookFailed(message.removeprefix("Internal error occurred: "), after=after)
    return Unavailable(f"the API server is unavailable: {message}", after=after)


def _refused(status: Mapping[str, Any], message: str) -> ApiError:
    causes = _causes(status)
    # What is wrong with the object itself names its field. A cause without one is a policy's, which may change.
    if causes and not any(cause.get("field") for cause in causes):
        return Forbidden(message)
    return Invalid(message, fields=_fields(status, message))


def _causes(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


def _fields(status: Mapping[str, Any], message: str) -> tuple[tuple[str, str], ...]:
    named = tuple(
        (str(cause.get("field") or "").removeprefix("<nil>"), one_line(str(cause["message"]), _LONGEST_MESSAGE))
        for cause in _causes(status)
        if cause.get("message")
    )
    return named or tuple((path, f"{kind} field") for kind, path in _UNKNOWN_FIELD.findall(message))


def _retry_after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    """Seconds that the server asks to wait, from the header or from the Status' details."""
    details = status.get("details")
    wanted = headers.get("Retry-After") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        seconds = float(wanted) if wanted is not None else None
    except (TypeError, ValueError):
        return None  # the header's other form, a date, is not used by Kubernetes
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_WAIT)


def _without_message(code: int, body: bytes, request: str) -> str:
    # From a proxy before the API server, or one that the API server forwards to.
    text = body.decode(errors="replace").strip()[:_LONGEST_TEXT]
    quoted = f": {text}" if text and text[0] not in "<{[" else ""
    return f"{request} returned {code} {_phrase(code)}{quoted}"


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return ""


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
