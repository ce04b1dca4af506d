"""spec.template: its containers, and how the container named `trainer` is merged with spec.trainer."""

import copy
from collections.abc import Mapping
from typing import Any

from ddpjob_core.api.constants import TRAINER_CONTAINER
from ddpjob_core.api.spec import DDPJobSpec, Trainer

# The keys that identify the items of a container's lists, with the default of a missing key.
_LIST_IDENTITIES: Mapping[str, Mapping[str, object]] = {
    "env": {"name": None},
    "volumeMounts": {"mountPath": None},
    "ports": {"containerPort": None, "protocol": "TCP"},
}


def trainer_of(template: dict[str, Any]) -> dict[str, Any]:
    """The template's container named trainer, or an empty one. Expects a template without errors."""
    containers = (template.get("spec") or {}).get("containers") or []
    return copy.deepcopy(next((c for c in containers if c.get("name") == TRAINER_CONTAINER), {}))


def others_of(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The template's other containers. Expects a template without errors."""
    containers = (template.get("spec") or {}).get("containers") or []
    return [copy.deepcopy(c) for c in containers if c.get("name") != TRAINER_CONTAINER]


def security_context_of(spec: DDPJobSpec) -> dict[str, Any]:
    """The `securityContext` of the merged trainer container. Expects a template without errors."""
    return merge_trainer(trainer_of(spec.template), spec.trainer).get("securityContext") or {}


def resources_of(spec: DDPJobSpec) -> dict[str, Any]:
    """The `resources` of the merged trainer container. Expects a template without errors."""
    # Asked for several times in each look at a job, unlike the rest of the container.
    return _merge_objects(trainer_of(spec.template).get("resources") or {}, spec.trainer.resources.to_wire())


def merge_trainer(base: dict[str, Any], trainer: Trainer) -> dict[str, Any]:
    """The template's trainer container overridden by spec.trainer field by field; lists are merged by name.

    Args:
        base: the container as `trainer_of` gives it.
        trainer: wins where both set a field.
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
        # As text: a template's values may be of any type, and the API server validates them later.
        return repr([item.get(key, default) for key, default in identity.items()])

    # The order is kept: $(NAME) in an environment variable refers to an earlier one.
    return list({identify(item): item for item in (*base, *over)}.values())


def _merge_objects(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merge_objects(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
