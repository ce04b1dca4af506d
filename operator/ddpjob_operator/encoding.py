"""JSON to and from the API server, many times faster than by the standard library."""

import json
from typing import Any, Final

import orjson

from ddpjob_core.api import bounded_json

_MANAGED_FIELDS: Final = b',"managedFields":['
"""The last of the metadata, in the order of the fields of the API server's types."""
_AFTER_MANAGED_FIELDS: Final = b']},"spec":'


def encode(value: Any) -> bytes:  # noqa: ANN401 any JSON value
    """The JSON of a value.

    Raises:
        TypeError: JSON has nothing for it.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Half of a surrogate pair, or a number above 64 bits: it is the API server that accepts or rejects these.
        return json.dumps(value).encode()


def decode(body: bytes) -> Any:  # noqa: ANN401 any JSON value
    """The value; see `ddpjob_core.api.bounded_json.decode`.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        with bounded_json.uncollected():
            return orjson.loads(body)
    except orjson.JSONDecodeError:
        # Nested too deep, or something that only the standard library takes.
        return bounded_json.decode(body)


def without_managed_fields(body: bytes) -> bytes:
    """The JSON of an object as the API server writes it, without the record of who has set which field.

    That is half of a pod, and most of the work to parse one. What is written otherwise is returned as it is.
    """
    begin = body.find(_MANAGED_FIELDS)
    # Within the record there are no lists, and a text has no quotation mark without a backslash before it.
    end = body.find(_AFTER_MANAGED_FIELDS, begin)
    return body[:begin] + body[end + 1 :] if 0 <= begin < end else body


def decode_object(body: bytes) -> Any:  # noqa: ANN401 any JSON value
    """The value of the JSON of an object, without the record of who has set which field.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return decode(without_managed_fields(body))
    except ValueError:
        # One object that is written in an unknown way must not end the watch of all others.
        return decode(body)
