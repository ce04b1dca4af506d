"""docs/api-reference.md, made from the schema of the CustomResourceDefinition."""

from collections.abc import Iterator
from typing import Any, Final

from ddpjob_core.api.constants import API_VERSION, INVALID_SPEC, KIND
from ddpjob_core.api.crd import Schema, custom_resource_definition

_INTRODUCTION: Final = f"""\
# The API of a {KIND}

<!-- Generated from operator/ddpjob_core/api by `python -m hack.generate`; do not edit. -->

`{API_VERSION}`. `kubectl explain ddpjob.spec` shows the same text. Fields in **bold** are required.
"""
_OF_AN_INVALID_SPEC: Final = (
    f"after it has failed with the reason {INVALID_SPEC}: any change of the spec then starts it again "
    "as a new attempt, which is not counted as a restart, and spec.ttlSecondsAfterFinished no longer runs"
)


def api_reference() -> str:
    """The page, in Markdown."""
    version = custom_resource_definition()["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    parts = [_INTRODUCTION, _rules(schema)]
    for name in ("spec", "status"):
        parts.extend(_sections(name, schema["properties"][name]))
    parts.append(_columns(version["additionalPrinterColumns"]))
    return "\n".join(part for part in parts if part)


def _sections(path: str, schema: Schema) -> Iterator[str]:
    required = schema.get("required", [])
    lines = [f"## {path}", "", schema.get("description", ""), ""]
    lines += ["| field | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    for name, field in schema["properties"].items():
        shown = f"**{name}**" if name in required else name
        cells = (shown, _type(field), _default(field), _bounds(field), _cell(field.get("description", "")))
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines) + "\n"
    yield _rules(schema)
    for name, field in schema["properties"].items():
        inner, suffix = (field["items"], "[]") if "items" in field else (field, "")
        if "properties" in inner:
            yield from _sections(f"{path}.{name}{suffix}", inner)


def _rules(schema: Schema) -> str:
    """What the API server validates besides types and bounds."""
    own = schema.get("x-kubernetes-validations", [])
    # The rule on a change of one field of the spec names that field.
    fixed = [rule["fieldPath"].removeprefix(".") for rule in own if "oldSelf" in rule["rule"] and "fieldPath" in rule]
    lines = [rule["message"] for rule in own if not ("oldSelf" in rule["rule"] and "fieldPath" in rule)]
    if fixed:
        lines.append(f"{', '.join(fixed)}: can change only while the job is suspended, or {_OF_AN_INVALID_SPEC}")
    for name, field in schema["properties"].items():
        if "properties" not in field:
            value = field.get("additionalProperties", {})
            rules = [*field.get("x-kubernetes-validations", []), *value.get("x-kubernetes-validations", [])]
            lines += [f"{name}: {rule['message']}" for rule in rules]
    return "\n".join(["Also validated:", "", *(f"- {line}" for line in lines)]) + "\n" if lines else ""


def _is_quantity(schema: Schema) -> bool:
    """Whether it takes text and numbers with a fraction, for which a structural schema has no type."""
    return "type" not in schema and "pattern" in schema and "minimum" in schema


def _type(schema: Schema) -> str:
    if _is_quantity(schema):
        return "quantity"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema.get("type", "object"))


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default in (None, {}) else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _bounds(schema: Schema) -> str:
    if "x-kubernetes-validations" in schema and schema.get("x-kubernetes-int-or-string"):
        return "see below"
    if _is_quantity(schema):
        return "not negative, such as 2, 0.5, 500m or 16Gi"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "minimum" in schema and "maximum" in schema:
        return f"{_number(schema['minimum'])} to {_number(schema['maximum'])}"
    units = {"maxLength": "characters", "maxItems": "items", "maxProperties": "keys"}
    return ", ".join(f"at most {schema[key]} {unit}" for key, unit in units.items() if key in schema)


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _columns(columns: list[dict[str, Any]]) -> str:
    lines = ["## Columns of `kubectl get ddpjobs`", "", "| column | from | meaning |", "|---|---|---|"]
    for column in columns:
        wide = " (with `-o wide`)" if column.get("priority") else ""
        lines.append(f"| {column['name'].upper()}{wide} | `{column['jsonPath']}` | {column['description']} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
