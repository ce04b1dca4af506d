"""The CustomResourceDefinition, generated from the types of `ddpjob_core.api`.

Kubernetes requires a structural schema: every type spelled out in place, no `$ref`, no `anyOf` around optional fields.
"""

from typing import Any, Final, TypeAlias

import yaml

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.columns import COLUMNS, Column
from ddpjob_core.api.constants import GROUP, KIND, MAX_NAME_LENGTH, PLURAL, VERSION
from ddpjob_core.api.fixed_fields import fixed_field_rules
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus, Phase

Schema: TypeAlias = dict[str, Any]

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_LARGEST_INT32: Final = 2**31 - 1
_ORDER: Final = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "not",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
    "required",
    "properties",
    "items",
    "additionalProperties",
)
"""Keys of a schema in the order in which a person reads them; other keys are dropped."""

NAME_RULE: Final = (
    f"must be a DNS-1035 label of at most {MAX_NAME_LENGTH} characters: "
    "lower case letters, digits and '-', starting with a letter and ending with a letter or digit"
)


def structural_schema(model: type[ApiModel], *, defaults: bool) -> Schema:
    """The schema of a type in the form that a CustomResourceDefinition accepts.

    Args:
        model: the type.
        defaults: whether the API server fills in defaults. Never inside a status: it is exactly what its writer wrote.
    """
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _Converter(raw.pop("$defs", {}), defaults=defaults).convert(raw)


class _Converter:
    def __init__(self, definitions: dict[str, Schema], *, defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def convert(self, raw: Schema) -> Schema:
        node = self._flat(raw)
        if node.get(_INT_OR_STRING):
            node.pop("type", None)
        if node.get(_PRESERVE) and "properties" not in node:
            # Without a type, CEL compares the whole value; for an object it would miss a key replaced by another.
            node = {key: value for key, value in node.items() if key not in ("type", "additionalProperties", "items")}
        if "properties" in node:
            node["properties"] = {name: self.convert(each) for name, each in node["properties"].items()}
            node.pop("additionalProperties", None)
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                node[key] = self.convert(node[key])
            else:
                node.pop(key, None)
        if node.get("type") == "integer":
            node["format"] = "int32" if abs(node.get("maximum", 2**63)) <= _LARGEST_INT32 else "int64"
        self._set_default(node)
        return {key: node[key] for key in _ORDER if key in node}

    def _flat(self, raw: Schema) -> Schema:
        """The node with its `$ref` resolved and an optional type unwrapped; its own keys take precedence."""
        node = dict(raw)
        if "$ref" in node:
            target = self._flat(self._definitions[node.pop("$ref").rsplit("/", 1)[1]])
            node = {**target, **node}
        if "anyOf" in node:
            choices = [self._flat(each) for each in node.pop("anyOf") if each.get("type") != "null"]
            if len(choices) == 1:
                node = {**choices[0], **node}
            elif not node.get(_INT_OR_STRING) and not node.get(_PRESERVE):
                raise TypeError(f"a structural schema must have exactly one type: {raw}")
        return node

    def _set_default(self, node: Schema) -> None:
        default = node.pop("default", None)
        if not self._defaults or default is None:
            return
        if "properties" in node:
            # The fields inside have defaults of their own; an empty object makes the API server fill them in.
            if any("default" in each for each in node["properties"].values()):
                node["default"] = {}
        elif default not in ([], {}):
            # Empty lists and maps in every stored object would be noise.
            node["default"] = default


def custom_resource_definition() -> dict[str, Any]:
    """The manifest of the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["ddp"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.nodes",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "selectableFields": [{"jsonPath": ".status.phase"}],
                    "additionalPrinterColumns": [_printer_column(column) for column in COLUMNS],
                    "schema": {"openAPIV3Schema": _root()},
                },
            ],
        },
    }


def _printer_column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
        **({"priority": 1} if column.wide else {}),
    }


def _root() -> Schema:
    return {
        "description": "DDPJob runs a PyTorch DistributedDataParallel training job on one or more nodes.",
        "type": "object",
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {MAX_NAME_LENGTH} "
                "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "message": f"metadata.name {NAME_RULE}",
            },
            *fixed_field_rules(),
        ],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"{GROUP}/{VERSION}", "type": "string"},
            "kind": {"description": KIND, "type": "string"},
            "metadata": {"type": "object"},
            "spec": _described(DDPJobSpec, "Desired state of the training job.", defaults=True),
            "status": {
                **_described(DDPJobStatus, "Observed state of the job, written only by the operator.", defaults=False),
                # Shown as long as there is no status: a new job has a state at once, and it costs no write. The
                # operator takes it for none, because attempt and podsCreated are missing.
                "default": {"phase": Phase.PENDING.value},
            },
        },
    }


def _described(model: type[ApiModel], description: str, *, defaults: bool) -> Schema:
    return {**structural_schema(model, defaults=defaults), "description": description}


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, and no anchors are used."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 as in the base class
        return bool(data is not None)

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)


def render(manifest: dict[str, Any]) -> str:
    """YAML in the order of the manifest, the same for the same manifest."""
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
