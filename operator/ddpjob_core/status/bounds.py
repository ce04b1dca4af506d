"""A status within the bounds of its own schema, whatever it was made of: what the CRD would refuse is never written.

The bounds are those of the CustomResourceDefinition itself, which is generated from the same types. A number out of
range is brought to the nearest end, a text or a list that is too long is cut, and what has no place in the schema is
left out, together with what cannot be without it.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ddpjob_core.api.base import parse_time
from ddpjob_core.api.schemas import status_schema
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.api.text import shorten

Schema: TypeAlias = Mapping[str, Any]

_KEYS: Final = "x-kubernetes-list-map-keys"


def within_bounds(status: DDPJobStatus) -> DDPJobStatus:
    """The status as it can be written; the same one if nothing has to be changed."""
    wire = status.to_wire()
    kept = fit(wire, status_schema())
    return status if kept == wire else DDPJobStatus.model_validate(kept or {})


def fit(value: object, schema: Schema) -> Any:  # noqa: ANN401 any JSON
    """The JSON value as far as it fits the schema; None if nothing of it does.

    Args:
        value: what is to be written.
        schema: a structural schema, as a CustomResourceDefinition has it.
    """
    fitted = _FITTED.get(schema.get("type", ""), _anything)(value, schema)
    return fitted if "enum" not in schema or fitted in schema["enum"] else None


def _object(value: object, schema: Schema) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    known = schema.get("properties", {})
    fields = {name: fit(each, known[name]) for name, each in value.items() if name in known}
    kept = {name: each for name, each in fields.items() if each is not None}
    return kept if all(name in kept for name in schema.get("required", ())) else None


def _list(value: object, schema: Schema) -> list[Any] | None:
    if not isinstance(value, list):
        return None
    kept = [each for item in value if (each := fit(item, schema["items"])) is not None]
    if _KEYS in schema:
        # Of two entries with the same keys the API server would take neither.
        kept = list({tuple(str(each.get(key)) for key in schema[_KEYS]): each for each in reversed(kept)}.values())[
            ::-1
        ]
    return kept[: schema.get("maxItems", len(kept))]


def _text(value: object, schema: Schema) -> str | None:
    if not isinstance(value, str) or (schema.get("format") == "date-time" and parse_time(value) is None):
        return None
    kept = shorten(value, schema.get("maxLength", len(value)))
    fits = len(kept) >= schema.get("minLength", 0) and ("pattern" not in schema or re.search(schema["pattern"], kept))
    return kept if fits else None


def _integer(value: object, schema: Schema) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    least: int = schema.get("minimum", -(2**63))
    most: int = schema.get("maximum", 2**63 - 1)
    return min(max(value, least), most)


def _number(value: object, schema: Schema) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    least: float = schema.get("minimum", value)
    most: float = schema.get("maximum", value)
    return min(max(value, least), most)


def _boolean(value: object, _: Schema) -> bool | None:
    return value if isinstance(value, bool) else None


def _anything(value: object, _: Schema) -> object:
    return value


_FITTED: Final[Mapping[str, Callable[[object, Schema], object]]] = {
    "object": _object,
    "array": _list,
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
