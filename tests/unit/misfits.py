"""What the API server would refuse of a value, by the structural schema of a CustomResourceDefinition."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

Schema = Mapping[str, Any]
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def misfits(path: str, value: object, schema: Schema) -> list[str]:
    """The paths that do not fit, each with what is wrong there."""
    return [f"{path}{place}: {problem}" for place, problem in _problems(value, schema)]


def _problems(value: object, schema: Schema) -> Iterator[tuple[str, str]]:
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield "", f"{value!r} is not of type {kind}"
    elif isinstance(value, dict):
        yield from _of_object(value, schema)
    elif isinstance(value, list):
        yield from _of_list(value, schema)
    elif isinstance(value, str):
        yield from _of_text(value, schema)
    elif isinstance(value, int | float) and kind != "boolean":
        yield from _of_number(value, schema)
    if "enum" in schema and value not in schema["enum"]:
        yield "", f"{value!r} is not one of {schema['enum']}"


def _of_object(value: dict[str, object], schema: Schema) -> Iterator[tuple[str, str]]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f".{name}", "is required"
    for name, inner in value.items():
        if name not in schema["properties"]:
            yield f".{name}", "is not known"
        else:
            yield from ((f".{name}{place}", problem) for place, problem in _problems(inner, schema["properties"][name]))


def _of_list(value: list[Any], schema: Schema) -> Iterator[tuple[str, str]]:
    if len(value) > schema["maxItems"]:
        yield "", f"has {len(value)} items"
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        names = [tuple(item[key] for key in keys) for item in value]
        if len(set(names)) < len(names):
            yield "", f"has two items of the same {keys}"
    for index, item in enumerate(value):
        yield from ((f"[{index}]{place}", problem) for place, problem in _problems(item, schema["items"]))


def _of_number(value: float, schema: Schema) -> Iterator[tuple[str, str]]:
    if not math.isfinite(value) or not schema["minimum"] <= value <= schema["maximum"]:
        yield "", f"{value} is not from {schema['minimum']} to {schema['maximum']}"


def _of_text(value: str, schema: Schema) -> Iterator[tuple[str, str]]:
    if schema.get("format") == "date-time":
        try:
            assert datetime.fromisoformat(value).tzinfo is not None
        except ValueError:
            yield "", f"{value!r} is not a time"
    elif "enum" not in schema and not schema.get("minLength", 0) <= len(value) <= schema["maxLength"]:
        yield "", f"has {len(value)} characters"
    if not re.search(schema.get("pattern", ""), value):
        yield "", f"{value!r} is not of the form {schema['pattern']}"
