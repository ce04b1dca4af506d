"""Which containers of a job's pods run as root, by what the job says and not by what their images do."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ddpjob_core.api.constants import TRAINER_CONTAINER
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.restricted import restricted_container
from ddpjob_core.children.template import security_context_of

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
    others = [each for key in ("containers", "initContainers") for each in template.get(key) or ()]
    # Most jobs say nothing about it, and this is asked for at every look at them.
    if spec.trainer.security_context is None and not any(each.get(_CONTEXT) for each in (template, *others)):
        return ()
    trainer = {"name": TRAINER_CONTAINER, _CONTEXT: security_context_of(spec)}
    containers = [trainer, *(each for each in others if each.get("name") != TRAINER_CONTAINER)]
    if restricted:
        containers = [restricted_container(each, template) for each in containers]
    return tuple(str(each["name"]) for each in containers if next(_users(each, template), None) == _ROOT)


def _users(container: Mapping[str, Any], template: Mapping[str, Any]) -> Iterator[object]:
    """The users that are named, the one that counts first. A user that restricted pods have by default is not root."""
    for each in (container, template):
        context = each.get(_CONTEXT)
        user = context.get("runAsUser") if isinstance(context, Mapping) else None
        if user is not None:
            yield user
