"""JSON to and from the API server, many times faster than by the standard library."""

import json
from typing import Any

import orjson

from ddpjob_core.api import bounded_json


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
