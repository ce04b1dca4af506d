"""JSON to and from the API server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_operator.encoding import decode, decode_object, encode, without_managed_fields

VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES)
def test_every_value_is_read_back_as_it_was_written(value: Any) -> None:
    assert json.loads(encode(value)) == value
    assert decode(encode(value)) == value
    assert decode(json.dumps(value).encode()) == value


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**30])
def test_a_number_above_64_bits_is_written_with_all_its_digits(number: int) -> None:
    assert json.loads(encode({"n": number})) == {"n": number}


def test_half_a_surrogate_pair_is_written_and_read() -> None:
    assert encode(["\ud800"]) == b'["\\ud800"]'
    assert decode(b'["\\ud800"]') == ["\ud800"]


def test_what_is_nested_too_deep_is_read_as_null() -> None:
    body = b'{"deep": ' + b"[" * 100_000 + b"]" * 100_000 + b', "name": "x"}'
    assert decode(body)["name"] == "x"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1,]", b"<html>"])
def test_what_is_not_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(body)


def test_what_json_has_nothing_for_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        encode({"x": object()})


def pod(text: str, keys: list[str]) -> dict[str, Any]:
    """As the API server writes it: in the order of the fields of its types."""
    fields = {f"k:{json.dumps({'name': key})}": {".": {}} for key in keys}
    entry = {"manager": text, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}
    metadata = {"name": "a", "annotations": {"a": text}, "managedFields": [entry, entry]}
    return {"metadata": metadata, "spec": {"a": text, "b": keys}, "status": {"message": text}}


_HOSTILE: Any = st.sampled_from([',"managedFields":[', ']},"spec":', '"}]},"spec":{', "\\", '"', "a"])


@given(st.lists(_HOSTILE | st.text(), max_size=3).map("".join), st.lists(_HOSTILE | st.text(), max_size=3))
def test_who_has_set_which_field_is_left_out_and_nothing_else_whatever_the_texts_say(
    text: str, keys: list[str]
) -> None:
    whole = pod(text, keys)
    read = decode(without_managed_fields(encode(whole)))
    del whole["metadata"]["managedFields"]
    assert read == whole


@pytest.mark.parametrize("body", [b"{}", b"", b'{"metadata":{"name":"a"},"spec":{}}', b',"managedFields":[', b"<html>"])
def test_what_has_no_such_record_is_left_as_it_is(body: bytes) -> None:
    assert without_managed_fields(body) == body


def test_an_object_that_cannot_be_read_without_such_a_record_is_read_with_it() -> None:
    record = b'{"metadata":{"a":[{"b":1,"managedFields":[{}]}]},"spec":{}}'
    misleading = b'{"metadata":{"x":[1,"managedFields"],"managedFields":[[{"y":[{}]},"spec",[1]]]},"spec":{}}'
    split = b'{"metadata":{"m":{"a":1,"managedFields":[{"f":{"g":[1]},"spec":2}]}},"spec":{"b":3}}'
    for body in (record, misleading, split):
        assert decode_object(body)["spec"] == decode(body)["spec"]
    with pytest.raises(ValueError, match=r"."):
        decode_object(b"{")
