"""What a user can do about an answer of the API server: one table."""

import re
from typing import Final

from ddpjob_core.api.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unavailable, WebhookFailed

_REMEDIES: Final[tuple[tuple[type[ApiError], str, str], ...]] = (
    (WebhookFailed, "", "try again in a moment; if it lasts, tell the owner of the webhook"),
    (Unavailable, "", "try again in a moment"),
    (Unauthorized, "", "sign in again; kubectl config view shows which user the context names"),
    (
        Forbidden,
        "violates PodSecurity",
        "set what it names in spec.trainer.securityContext and spec.template.spec, or use a namespace that allows it",
    ),
    (Forbidden, "(maximum|minimum) .*per (Pod|Container)", "stay within the limits of kubectl describe limitrange"),
    (Forbidden, "error looking up service account", "create it, or correct spec.template.spec.serviceAccountName"),
    (Forbidden, "no PriorityClass", "correct spec.template.spec.priorityClassName: kubectl get priorityclasses"),
    (
        Forbidden,
        "system:serviceaccount:\\S+:ddpjob-operator.* cannot .*networkpolicies",
        "the operator lacks what --network-policies needs: kubectl apply -k manifests/overlays/network-policies",
    ),
    (
        Forbidden,
        "system:serviceaccount:\\S+:ddpjob-operator.* cannot ",
        "the operator lacks this permission: kubectl apply -k manifests/base",
    ),
    (
        Forbidden,
        "exceeded quota|failed quota",
        "free some of it, request less, or have the quota raised: kubectl describe quota",
    ),
    (Forbidden, "admission webhook", "ask the owner of the webhook what it requires"),
    (Forbidden, "AdmissionPolicy 'ddpjob-pods'", "docs/security.md has a Role with these permissions"),
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


def remedy_of_refusal(message: str) -> str:
    """What to do about an object that the operator may not create, by the API server's message."""
    fits = (remedy for kind, text, remedy in _REMEDIES if kind is Forbidden and text and re.search(text, message))
    return next(fits, "the message names what refuses it; the job starts once it is allowed")
