"""Defaults with which pods pass the Pod Security Standard `restricted`. What a job itself says stays.

The CRD does not know them: a job that began with an operator without them keeps its user, and its spec hash.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from collections.abc import Mapping
from typing import Any, Final

from ddpjob_core.api.status import DDPJobStatus

RESTRICTED: Final = "Restricted"
"""status.podSecurity of a job whose pods have these defaults."""
USER: Final = 1000
"""User and group of a pod whose job names no user."""
_ROOT: Final = 0
_UNPRIVILEGED: Final = ("NET_BIND_SERVICE", "CAP_NET_BIND_SERVICE")
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"


def is_restricted(status: DDPJobStatus | None) -> bool:
    """Whether the pods of a job with this status get the defaults: not if earlier ones were created without them."""
    if status is None or status.pod_security == RESTRICTED:
        return True
    # A job that is mended after its spec could not work starts its time again, but its checkpoints remain.
    return status.start_time is None and status.attempt == 0


def pod_defaults(template: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a pod's spec that change.

    Args:
        template: spec.template.spec; its values may be of any type, which the API server judges.
        annotations: those of spec.template.
    """
    context = template.get("securityContext") or {}
    if _is_for_windows(template) or not isinstance(context, Mapping):
        return {}
    # Of what annotations say, the API server refuses the opposite.
    seccomp = {} if _SECCOMP in annotations else {"seccompProfile": {"type": "RuntimeDefault"}}
    fields: dict[str, Any] = {"securityContext": {**seccomp, **_user(context), **_given(context)}}
    init = template.get("initContainers")
    if isinstance(init, list):
        fields["initContainers"] = [restricted_container(each, template) for each in init]
    return fields


def restricted_container(container: Any, template: Mapping[str, Any]) -> Any:  # noqa: ANN401 a part of any type stays
    """A container with its defaults.

    Args:
        container: as the job has it.
        template: spec.template.spec, whose securityContext counts for it too.
    """
    context = (container.get("securityContext") or {}) if isinstance(container, Mapping) else None
    pods = template.get("securityContext") or {}
    if _is_for_windows(template) or not isinstance(context, Mapping) or not isinstance(pods, Mapping):
        return container
    return {**container, "securityContext": _container_context(context, pods)}


def _user(context: Mapping[str, Any]) -> dict[str, Any]:
    user = context.get("runAsUser")
    if user is None:
        return {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
    # For a user of its own, the image may have a group as well.
    return {} if user == _ROOT else {"runAsNonRoot": True}


def _container_context(context: Mapping[str, Any], pods: Mapping[str, Any]) -> dict[str, Any]:
    given, own = _given(context), context.get("runAsUser")
    if own == _ROOT:
        return {**_root(pods), **given}
    # Root that may not even read files of others would be root in name only.
    if own is None and pods.get("runAsUser") == _ROOT:
        return given
    capabilities = given.get("capabilities", {})
    if not isinstance(capabilities, Mapping):
        return given
    if given.get("privileged") or _adds_privileges(capabilities):
        # It is refused with some of the defaults, and of its privileges the pod's default user would have none.
        speak = (own, pods.get("runAsUser"), given.get("runAsNonRoot") or None, pods.get("runAsNonRoot") or None)
        return {"runAsUser": _ROOT, **_root(pods), **given} if all(each is None for each in speak) else given
    return {"allowPrivilegeEscalation": False, **given, "capabilities": _without_any(_given(capabilities))}


def _adds_privileges(capabilities: Mapping[str, Any]) -> bool:
    added = capabilities.get("add")
    return bool(added) and (not isinstance(added, list) or any(each not in _UNPRIVILEGED for each in added))


def _without_any(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    dropped = capabilities.get("drop", [])
    if not isinstance(dropped, list) or "ALL" in dropped:
        return dict(capabilities)
    return {**capabilities, "drop": [*dropped, "ALL"]}


def _root(pods: Mapping[str, Any]) -> dict[str, Any]:
    # The pod's default group is not root's.
    named = any(pods.get(field) is not None for field in ("runAsUser", "runAsGroup"))
    return {"runAsNonRoot": False} if named else {"runAsNonRoot": False, "runAsGroup": _ROOT}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _is_for_windows(template: Mapping[str, Any]) -> bool:
    system = template.get("os")
    return isinstance(system, Mapping) and system.get("name") == "windows"
