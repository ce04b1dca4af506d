"""What an answer with an error code means for the user who asked."""

import json
import re
from http import HTTPStatus
from typing import Any, Final

from ddpjob_core.api.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
)

_NO_SUCH_API: Final = "the server could not find the requested resource"
_INSTALL: Final = "the cluster has no DDPJobs: kubectl apply --server-side -f manifests/crd/ddpjobs.yaml"
_LONGEST_TEXT: Final = 300
_UNKNOWN_FIELD: Final = re.compile(r'(unknown|duplicate) field "([^"]+)"')


def refusal(code: int, body: bytes, asked: str) -> ClusterError:
    """The error for an answer.

    Args:
        code: HTTP status code.
        body: the answer, a `Status` object where it comes from the API server itself.
        asked: method and path.
    """
    status = _parse(body)
    message = str(status.get("message") or "").strip() or _without_status(code, body, asked)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT):
        return Unreachable(f"the API server cannot answer now: {message}", "try again in a moment")
    if code == HTTPStatus.UNAUTHORIZED:
        return Unauthorized(
            f"the API server does not accept your credentials: {message}",
            "sign in again; kubectl config view shows which user the context names",
        )
    return _refused(code, status, message)


def _refused(code: int, status: dict[str, Any], message: str) -> ClusterError:
    if code == HTTPStatus.FORBIDDEN:
        return _forbidden(message)
    if code == HTTPStatus.NOT_FOUND:
        return NotFound(message, _INSTALL if message.startswith(_NO_SUCH_API) else "")
    if code == HTTPStatus.CONFLICT:
        return _conflict(message, status)
    return Expired(message) if code == HTTPStatus.GONE else Invalid(message, fields=_fields(status, message))


def _conflict(message: str, status: dict[str, Any]) -> ClusterError:
    if status.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    return Conflict(message, "somebody changed it meanwhile: try again")


def _forbidden(message: str) -> Forbidden:
    if "exceeded quota" in message:
        return Forbidden(message, "free some of it, ask for less, or have the quota raised: kubectl describe quota")
    if message.startswith("admission webhook"):
        return Forbidden(message, "the webhook's owner can say what it asks for")
    return Forbidden(message, "ask for the missing right; ddpjob doctor lists those that you have")


def _fields(status: dict[str, Any], message: str) -> tuple[tuple[str, str], ...]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    named = tuple(
        (str(cause.get("field") or "").removeprefix("<nil>"), str(cause.get("message") or "").strip())
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict) and cause.get("message")
    )
    return named or tuple((path, f"{kind} field") for kind, path in _UNKNOWN_FIELD.findall(message))


def _without_status(code: int, body: bytes, asked: str) -> str:
    # From what stands between, or behind a proxy of the API server.
    said = body.decode(errors="replace").strip()[:_LONGEST_TEXT]
    return f"the answer to {asked} was {code} {_phrase(code)}" + (f": {said}" if said and said[0] not in "<{" else "")


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return ""


def _parse(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
