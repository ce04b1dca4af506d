"""What a user can do about an answer of the API server: one table."""

import re
from typing import Final

from ddpjob_core.api.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unavailable, WebhookFailed

_REMEDIES: Final[tuple[tuple[type[ApiError], str, str], ...]] = (
    (WebhookFailed, "", "try again in a moment; if it lasts, tell the owner of the webhook"),
    (Unavailable, "", "try again in a moment"),
    (Unauthorized, "", "sign in again; kubectl config view shows which user the context names"),
    (Forbidden, "exceeded quota", "free some of it, request less, or have the quota raised: kubectl describe quota"),
    (Forbidden, "^admission webhook", "ask the owner of the webhook what it requires"),
    (Forbidden, "AdmissionPolicy '", "ask the owner of the policy what it requires"),
    (Forbidden, "", "ask for the missing permission; ddpjob doctor checks your permissions"),
    (
        NotFound,
        "^the server could not find the requested resource",
        "install the DDPJob API: kubectl apply --server-side -f manifests/crd/ddpjobs.yaml",
    ),
    (Conflict, "", "it was changed at the same time: try again"),
)
"""Kind of error, a pattern of its message, and the remedy; the first row that fits counts."""


def with_remedy(error: ApiError) -> ApiError:
    """The same error with what the user can do about it."""
    fits = (remedy for kind, text, remedy in _REMEDIES if isinstance(error, kind) and re.search(text, str(error)))
    error.remedy = error.remedy or next(fits, "")
    return error
