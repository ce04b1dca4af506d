"""Answers of the API server with whatever users have stored."""

import gc
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.bounded_json import decode, flattened, list_of
from ddpjob_core.api.extent import DEEPEST, excess

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def deep(levels: int, inner: str = "1") -> str:
    return '{"x":[' * (levels // 2) + inner + "]}" * (levels // 2)


@given(VALUES)
def test_what_is_not_too_deep_is_read_as_it_is(value: Any) -> None:
    text = json.dumps(value)
    assert decode(text.encode()) == value
    assert json.loads(flattened(text)) == value


@pytest.mark.parametrize("levels", [200, 10_000, 100_000])
def test_what_is_too_deep_for_the_parser_is_left_out_and_still_recognized(levels: int) -> None:
    text = '{"before": "[[\\"{", "deep": ' + deep(levels) + ', "after": [1, {"a": "]"}]}'
    read = decode(text.encode())
    assert (read["before"], read["after"]) == ('[["{', [1, {"a": "]"}])
    assert excess(read["deep"]) == f"must not be nested more than {DEEPEST} levels deep"


@given(st.lists(VALUES, max_size=5), st.booleans())
def test_the_items_of_a_list_come_one_by_one(items: list[Any], spaces: bool) -> None:  # noqa: FBT001 hypothesis' own
    answer = {"kind": "DDPJobList", "items": items, "metadata": {"resourceVersion": "7"}}
    text = json.dumps(answer, indent=1 if spaces else None)
    assert list(list_of(text.encode())) == [
        ("kind", "DDPJobList"),
        *(("items", item) for item in items),
        ("metadata", {"resourceVersion": "7"}),
    ]


def test_a_deep_item_does_not_spoil_those_after_it() -> None:
    text = f'{{"items":[1,{deep(20_000)},{{"a":{deep(20_000)}}},4],"metadata":{{}}}}'
    fields = list(list_of(text.encode()))
    assert [fields[0], fields[3], fields[4]] == [("items", 1), ("items", 4), ("metadata", {})]
    assert excess(fields[1][1])
    assert excess(fields[2][1])


HEAD = {"apiVersion": "ddpjob.dev/v1alpha1"}


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=5), st.booleans())
def test_items_that_hold_what_looks_like_other_items_are_read_whole(
    items: list[dict[str, Any]],
    last: bool,  # noqa: FBT001 hypothesis' own
) -> None:
    objects = [{**HEAD, "list": [HEAD, HEAD], "text": json.dumps([HEAD, HEAD]), **item} for item in items]
    answer = {
        "kind": "L",
        **({} if last else {"items": objects}),
        "metadata": {},
        **({"items": objects} if last else {}),
    }
    text = json.dumps(answer, separators=(",", ":"))
    assert [value for name, value in list_of(text.encode()) if name == "items"] == objects


def test_a_list_is_never_a_text_as_a_whole() -> None:
    """One character beyond the first 65,536 makes Python take four bytes for each of them."""
    items = [{**HEAD, "text": "\N{ROCKET}" + "x" * 100_000} for _ in range(100)]
    body = json.dumps({"items": items}, ensure_ascii=False, separators=(",", ":")).encode()
    tracemalloc.start()
    try:
        count = sum(1 for _ in list_of(body))
        assert tracemalloc.get_traced_memory()[1] < len(body) / 5
    finally:
        tracemalloc.stop()
    assert count == len(items)


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"items":[1', b'{"items" 1}', b"\xff"])
def test_what_is_not_a_list_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        list(list_of(body))


def test_reading_many_lists_starts_no_garbage_collection_for_each_few_of_them() -> None:
    """Each would look at many other objects of the process."""
    begun: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        begun.append(phase)

    body = b"[" + b",".join([b"[]"] * 100 * gc.get_threshold()[0]) + b"]"
    gc.collect()
    gc.callbacks.append(note)
    try:
        decode(body)
    finally:
        gc.callbacks.remove(note)
    # One comes afterwards, for all of them together.
    assert begun.count("start") <= 2
    assert gc.isenabled()
