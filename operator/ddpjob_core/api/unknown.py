"""What a newer version of this API has put into a DDPJob: fields and values that this version does not know.

The API server drops fields that the CustomResourceDefinition does not have. One that this version does not know is
there because a newer definition is installed, and a newer operator may rely on it.
"""

from ddpjob_core.api.crd import Schema
from ddpjob_core.api.schemas import spec_schema, status_schema
from ddpjob_core.api.status import STATUS_VERSION
from ddpjob_core.api.text import one_line

_LIMIT = 253


def unknown_in_spec(raw: object) -> str | None:
    """The first field or value of a spec that this version does not know, as a path; None if it knows all."""
    return _bounded(_unknown(raw, spec_schema(), "spec"))


def unknown_in_status(raw: object) -> str | None:
    """The same for a status, or its version where that is newer."""
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > STATUS_VERSION:
        return _bounded(f"status.version: {version}")
    return _bounded(_unknown(raw, status_schema(), "status"))


def _unknown(value: object, schema: Schema, path: str) -> str | None:
    if "enum" in schema and isinstance(value, str):
        return None if value in schema["enum"] else f"{path}: {value}"
    if isinstance(value, dict):
        return _unknown_in_object(value, schema, path)
    if isinstance(value, list) and "items" in schema:
        found = (_unknown(item, schema["items"], f"{path}[{index}]") for index, item in enumerate(value))
        return next((each for each in found if each is not None), None)
    return None


def _unknown_in_object(value: dict[str, object], schema: Schema, path: str) -> str | None:
    fields, others = schema.get("properties"), schema.get("additionalProperties")
    if fields is None and others is None:
        # A free field, such as the template.
        return None
    for name, item in value.items():
        inner = (fields or {}).get(name, others)
        if inner is None and schema.get("x-kubernetes-preserve-unknown-fields"):
            # The API server keeps whatever stands here, so it says nothing about the definition.
            continue
        if inner is None:
            return f"{path}.{name}"
        found = _unknown(item, inner, f"{path}.{name}")
        if found is not None:
            return found
    return None


def _bounded(found: str | None) -> str | None:
    return None if found is None else one_line(found, _LIMIT)
