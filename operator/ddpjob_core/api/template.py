"""spec.template: the parts that are refused, as far as they can be checked without an API server."""

from collections.abc import Iterator, Mapping
from typing import Any

from ddpjob_core.api.constants import GROUP, LABEL_NAME, OPERATOR_NAME, TRAINER_CONTAINER, is_reserved_env
from ddpjob_core.api.extent import excess
from ddpjob_core.api.quantity import LONGEST_QUANTITY, parse_quantity

_POD_FIELDS_OF_THE_OPERATOR = {
    "hostname": "the operator gives each pod its own name as host name",
    "subdomain": "the operator sets it to the job's service",
    "setHostnameAsFQDN": "the order of the ranks follows the pods' short names",
    "terminationGracePeriodSeconds": "use spec.gracePeriodSeconds",
    "nodeName": "every pod of the job would be put on that one node; use nodeSelector or affinity",
}
_CONTAINER_FIELDS_OF_THE_OPERATOR = {
    "command": "use spec.trainer.command",
    "args": "use spec.trainer.args",
    "terminationMessagePath": "the launcher writes its report to the default path",
}
_LONGEST_NAME = 253


def template_problems(template: dict[str, Any]) -> list[tuple[str, str]]:
    """What is wrong with the template: the path of each field that the operator refuses, and what to do about it.

    The API server checks the other fields when the first pod is created.
    """
    too_much = excess(template)
    if too_much is not None:
        return [("spec.template", too_much)]
    return [(f"spec.template{path}", problem) for path, problem in _problems(template)]


def template_errors(template: dict[str, Any]) -> list[str]:
    """What is wrong with the template, one sentence per field."""
    return [f"{path}: {problem}" for path, problem in template_problems(template)]


def on_host_network(template: Mapping[str, Any]) -> bool:
    """Whether the template asks for the nodes' network; even for one with errors."""
    spec = template.get("spec")
    return isinstance(spec, dict) and spec.get("hostNetwork") is True


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
                yield f".metadata.{key}", "only labels and annotations can be set here; remove it"
        elif value is not None and not isinstance(value, dict):
            yield f".metadata.{key}", _not(value, "an object")
    for key in ("labels", "annotations"):
        given = metadata.get(key)
        for name in given if isinstance(given, dict) else ():
            if str(name).startswith(f"{GROUP}/"):
                yield f".metadata.{key}[{name}]", f"{key} of {GROUP} are set by the operator; remove it"
    labels = metadata.get("labels")
    if isinstance(labels, dict) and labels.get(LABEL_NAME) == OPERATOR_NAME:
        # Prometheus takes the word of such a pod for the metrics of any job.
        yield f".metadata.labels[{LABEL_NAME}]", f"{OPERATOR_NAME} is the operator itself; use another value"


def _spec_problems(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, why in _POD_FIELDS_OF_THE_OPERATOR.items():
        if spec.get(key):
            yield f".spec.{key}", f"cannot be set: {why}; remove it"
    if spec.get("restartPolicy", "Never") != "Never":
        yield ".spec.restartPolicy", "must be Never or left out: spec.restart controls restarts"
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
            problem = _quantity_problem(amount)
            if problem:
                yield f"{path}.{key}[{str(name)[:_LONGEST_NAME]}]", problem


def _quantity_problem(amount: object) -> str | None:
    if not isinstance(amount, int | float | str) or isinstance(amount, bool):
        return _not(amount, "a quantity")
    if isinstance(amount, str) and len(amount) > LONGEST_QUANTITY:
        return f"must be a quantity of at most {LONGEST_QUANTITY} characters, such as 2, 500m or 16Gi"
    number = parse_quantity(amount)
    # The API server, which knows every form, refuses what cannot be read here.
    return "must not be negative" if number is not None and number < 0 else None


def _not(found: object, wanted: str) -> str:
    return f"must be {wanted}, not {type(found).__name__}"
