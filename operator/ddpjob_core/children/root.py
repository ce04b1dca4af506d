"""Which containers of a job's pods run as root, by what the job says and not by what their images do."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ddpjob_core.api.constants import TRAINER_CONTAINER
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.restricted import pod_defaults, restricted_container

_CONTEXT: Final = "securityContext"
_ROOT: Final = 0


def containers_as_root(spec: DDPJobSpec, *, restricted: bool) -> tuple[str, ...]:
    """Names of these containers, the trainer's first, those of the template's init containers last.

    Expects a template without errors (`template_errors`).

    Args:
        spec: the job's spec.
        restricted: whether its pods have the defaults of `restricted.py`.
    """
    template = spec.template.get("spec") or {}
    trainers = (spec.trainer.to_wire().get(_CONTEXT) if spec.trainer.security_context is not None else None) or {}
    containers = list(_containers(template, trainers))
    pods = template.get(_CONTEXT) or {}
    if not any((pods, *(each[_CONTEXT] for each in containers))):
        return ()
    if restricted:
        containers = [restricted_container(each, template) for each in containers]
        pods = pod_defaults({_CONTEXT: pods, "os": template.get("os")}, {}).get(_CONTEXT, pods)
    return tuple(each["name"] for each in containers if _user(each[_CONTEXT], pods) == _ROOT)


def _containers(template: Mapping[str, Any], trainers: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Name and security context of each."""
    containers = [each for key in ("containers", "initContainers") for each in template.get(key) or ()]
    named = {str(each.get("name")): each.get(_CONTEXT) or {} for each in containers}
    own = named.pop(TRAINER_CONTAINER, {})
    merged = {TRAINER_CONTAINER: {**own, **trainers} if isinstance(own, Mapping) else own, **named}
    return ({"name": name, _CONTEXT: context} for name, context in merged.items())


def _user(context: object, pods: object) -> object:
    for each in (context, pods):
        user = each.get("runAsUser") if isinstance(each, Mapping) else None
        if user is not None:
            return user
    return None
