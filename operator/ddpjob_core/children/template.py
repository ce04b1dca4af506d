"""spec.template: what of it is refused, and how its container `trainer` is merged with spec.trainer."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from ddpjob_core.api.constants import GROUP, TRAINER_CONTAINER, is_reserved_env
from ddpjob_core.api.spec import Trainer

_POD_FIELDS_OF_THE_OPERATOR = {
    "hostname": "the operator gives each pod its own name as host name",
    "subdomain": "the operator sets it to the job's service",
    "setHostnameAsFQDN": "the order of the ranks follows the pods' short names",
    "terminationGracePeriodSeconds": "it is spec.gracePeriodSeconds",
    "nodeName": "every pod of the job would be put on that one node; use nodeSelector or affinity",
}
# The keys that tell the items of a container's lists apart, and what a missing one stands for.
_LIST_IDENTITIES: Mapping[str, Mapping[str, object]] = {
    "env": {"name": None},
    "volumeMounts": {"mountPath": None},
    "ports": {"containerPort": None, "protocol": "TCP"},
}
_CONTAINER_FIELDS_OF_THE_OPERATOR = {
    "command": "use spec.trainer.command",
    "args": "use spec.trainer.args",
    "terminationMessagePath": "the launcher writes its report to the usual place",
}


def template_errors(template: dict[str, Any]) -> list[str]:
    """What is wrong with the template as far as the operator can tell: each entry names the field and what to do.

    What is left, the API server checks when the first pod is created.
    """
    return [f"spec.template{path}: {problem}" for path, problem in _problems(template)]


def _problems(template: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in template:
        if key not in ("metadata", "spec"):
            yield f".{key}", "unknown field; a pod template has metadata and spec"
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    if isinstance(metadata, dict):
        yield from _metadata_problems(metadata)
    else:
        yield ".metadata", _not(metadata, "an object")
    if isinstance(spec, dict):
        yield from _spec_problems(spec)
    else:
        yield ".spec", _not(spec, "an object")


def _metadata_problems(metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in metadata.items():
        if key not in ("labels", "annotations"):
            if key != "creationTimestamp" or value is not None:
                yield f".metadata.{key}", "only labels and annotations can be given here; remove it"
        elif value is not None and not isinstance(value, dict):
            yield f".metadata.{key}", _not(value, "an object")
    for key in ("labels", "annotations"):
        given = metadata.get(key)
        for name in given if isinstance(given, dict) else ():
            if str(name).startswith(f"{GROUP}/"):
                yield f".metadata.{key}[{name}]", f"{key} of {GROUP} are set by the operator; remove it"


def _spec_problems(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, why in _POD_FIELDS_OF_THE_OPERATOR.items():
        if spec.get(key):
            yield f".spec.{key}", f"cannot be set: {why}; remove it"
    if spec.get("restartPolicy", "Never") != "Never":
        yield ".spec.restartPolicy", "must be Never or left out: restarts are spec.restart's business"
    for key in ("containers", "initContainers", "volumes"):
        value = spec.get(key)
        if value is None:
            continue
        if not isinstance(value, list):
            yield f".spec.{key}", _not(value, "a list")
            continue
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                yield f".spec.{key}[{index}]", _not(item, "an object")
            elif key == "containers" and item.get("name") == TRAINER_CONTAINER:
                yield from _container_problems(item, f".spec.containers[{index}]")


def _container_problems(container: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, instead in _CONTAINER_FIELDS_OF_THE_OPERATOR.items():
        if container.get(key):
            yield f"{path}.{key}", f"cannot be set for the container {TRAINER_CONTAINER}: {instead}"
    for key in ("env", "envFrom", "ports", "volumeMounts"):
        value = container.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
            yield f"{path}.{key}", _not(value, "a list of objects")
    for key in ("resources", "securityContext"):
        value = container.get(key)
        if value is not None and not isinstance(value, dict):
            yield f"{path}.{key}", _not(value, "an object")
    yield from _resource_problems(container.get("resources"), f"{path}.resources")
    variables = container.get("env")
    for variable in variables if isinstance(variables, list) else ():
        name = variable.get("name") if isinstance(variable, dict) else None
        if isinstance(name, str) and is_reserved_env(name):
            yield f"{path}.env[{name}]", "this name is set by the launcher; remove it"


def _resource_problems(resources: object, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(resources, dict):
        return
    for key in ("limits", "requests"):
        amounts = resources.get(key)
        if amounts is not None and not isinstance(amounts, dict):
            yield f"{path}.{key}", _not(amounts, "an object")
        for name, amount in amounts.items() if isinstance(amounts, dict) else ():
            if not isinstance(amount, int | float | str) or isinstance(amount, bool):
                yield f"{path}.{key}[{name}]", _not(amount, "a quantity")


def _not(found: object, wanted: str) -> str:
    return f"must be {wanted}, not {type(found).__name__}"


def trainer_of(template: dict[str, Any]) -> dict[str, Any]:
    """The template's container named trainer, or an empty one. Expects a template without errors."""
    containers = (template.get("spec") or {}).get("containers") or []
    return copy.deepcopy(next((c for c in containers if c.get("name") == TRAINER_CONTAINER), {}))


def others_of(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The template's other containers. Expects a template without errors."""
    containers = (template.get("spec") or {}).get("containers") or []
    return [copy.deepcopy(c) for c in containers if c.get("name") != TRAINER_CONTAINER]


def merge_trainer(base: dict[str, Any], trainer: Trainer) -> dict[str, Any]:
    """The template's trainer container with spec.trainer laid over it, field by field; lists are merged by name.

    Args:
        base: the container as `trainer_of` gives it.
        trainer: what wins where both say something.
    """
    wire = trainer.to_wire()
    merged = {**base, "name": TRAINER_CONTAINER}
    for key in ("image", "imagePullPolicy", "workingDir"):
        if wire.get(key) is not None:
            merged[key] = wire[key]
    for key, identity in _LIST_IDENTITIES.items():
        items = _merge_lists(merged.get(key) or [], wire.get(key) or [], identity)
        if items:
            merged[key] = items
    if merged.get("envFrom") or wire.get("envFrom"):
        merged["envFrom"] = [*(merged.get("envFrom") or []), *(wire.get("envFrom") or [])]
    for key in ("resources", "securityContext"):
        value = _merge_objects(merged.get(key) or {}, wire.get(key) or {})
        if value:
            merged[key] = value
    return merged


def _merge_lists(
    base: list[dict[str, Any]], over: list[dict[str, Any]], identity: Mapping[str, object]
) -> list[dict[str, Any]]:
    def identify(item: dict[str, Any]) -> str:
        # As text: what a template holds may be of any type, and the API server judges it later.
        return repr([item.get(key, default) for key, default in identity.items()])

    # The order is kept: $(NAME) in an environment variable refers to an earlier one.
    return list({identify(item): item for item in (*base, *over)}.values())


def _merge_objects(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merge_objects(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
