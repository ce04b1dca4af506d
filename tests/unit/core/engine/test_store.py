"""Caches converge to the truth, in whatever order and however often it is reported."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.engine.store import Store


@dataclass(frozen=True, slots=True)
class Thing:
    name: str
    uid: str
    resource_version: str
    group: str = ""
    namespace: str = "default"


def store() -> tuple[Store[Thing], list[tuple[Thing | None, Thing | None]]]:
    changes: list[tuple[Thing | None, Thing | None]] = []
    return Store(groups=lambda thing: [thing.group], listener=lambda *change: changes.append(change)), changes


OLD, NEW = Thing("a", "1", "5"), Thing("a", "1", "6")


def test_an_old_event_does_not_undo_a_newer_one() -> None:
    things, changes = store()
    things.seen(NEW)
    things.seen(OLD)
    things.seen(NEW)
    assert things.get("default", "a") == NEW
    assert changes == [(None, NEW)]


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({}, True),
        ({"resourceVersion": "6"}, False),
        ({"uid": "2"}, False),
        ({"name": "b"}, False),
        ({"namespace": "other"}, False),
        ({"resourceVersion": None}, False),
        ({"name": ["a"]}, False),
        ({"namespace": {}}, False),
    ],
)
def test_only_the_very_version_that_is_cached_counts_as_shown(changed: dict[str, object], *, shown: bool) -> None:
    things, _ = store()
    things.seen(OLD)
    assert things.shows({"namespace": "default", "name": "a", "uid": "1", "resourceVersion": "5", **changed}) is shown


def test_the_answer_of_a_write_stands_until_the_watch_has_caught_up() -> None:
    things, _ = store()
    things.remember(NEW)
    things.replace([], "5")
    assert things.get("default", "a") == NEW
    things.replace([], "6")
    assert things.get("default", "a") is None


def test_the_answer_of_a_graceful_deletion_wins_over_the_same_version() -> None:
    things, _ = store()
    things.seen(OLD)
    stopping = replace(OLD, group="stopping")
    things.remember(stopping)
    things.seen(OLD)
    assert things.get("default", "a") == stopping


def test_what_was_answered_to_be_gone_never_comes_back_under_its_uid() -> None:
    things, _ = store()
    things.seen(OLD)
    things.forget("default", "a", "1")
    things.seen(NEW)
    things.replace([NEW], "9")
    assert things.get("default", "a") is None


def test_an_object_that_left_its_label_comes_back_with_it() -> None:
    things, _ = store()
    things.seen(OLD)
    things.deleted(NEW)
    assert things.get("default", "a") is None
    things.seen(OLD)
    assert things.get("default", "a") is None
    back = replace(NEW, resource_version="7")
    things.seen(back)
    assert things.get("default", "a") == back


def test_a_stale_deletion_does_not_remove_a_newer_state() -> None:
    things, _ = store()
    things.seen(NEW)
    things.deleted(OLD)
    assert things.get("default", "a") == NEW


def test_a_new_object_of_the_same_name_buries_the_old_one() -> None:
    things, _ = store()
    things.seen(NEW)
    other = Thing("a", "2", "8")
    things.seen(other)
    things.deleted(replace(NEW, resource_version="7"))
    things.seen(replace(NEW, resource_version="9"))
    assert things.get("default", "a") == other


def test_a_list_shows_what_was_deleted_unnoticed() -> None:
    things, changes = store()
    things.seen(OLD)
    kept = Thing("b", "2", "3")
    things.seen(kept)
    things.replace([kept], "20")
    assert list(things) == [kept]
    assert changes[-1] == (OLD, None)


def test_a_list_of_one_namespace_shows_nothing_about_another() -> None:
    things, changes = store()
    here, there = OLD, replace(OLD, namespace="other", uid="2")
    things.seen(here)
    things.seen(there)
    things.replace([], "20", "default")
    assert list(things) == [there]
    assert changes[-1] == (here, None)
    things.keep_only({"1"}, "30", "other")
    assert list(things) == []


def test_groups_follow_the_records() -> None:
    things, _ = store()
    things.seen(replace(OLD, group="x"))
    things.seen(replace(NEW, group="y"))
    assert things.group("x") == ()
    assert things.group("y") == (replace(NEW, group="y"),)
    things.deleted(replace(NEW, group="y"))
    assert things.group("y") == ()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, Thing]], dict[str, Thing]]:
    """What happened to three names, in order, and what is left in the end."""
    events: list[tuple[str, Thing]] = []
    live: dict[str, Thing] = {}
    for version in range(1, draw(st.integers(2, 14))):
        name = draw(st.sampled_from("abc"))
        current = live.get(name)
        if current is None:
            live[name] = Thing(name, f"uid-{version}", str(version))
            events.append(("MODIFIED", live[name]))
        elif draw(st.booleans()):
            live[name] = replace(current, resource_version=str(version))
            events.append(("MODIFIED", live[name]))
        else:
            events.append(("DELETED", replace(live.pop(name), resource_version=str(version))))
    return events, live


@given(histories(), st.data())
def test_events_doubled_and_in_any_order_end_in_the_same_state(
    history: tuple[list[tuple[str, Thing]], dict[str, Thing]], data: st.DataObject
) -> None:
    events, live = history
    doubled = events + data.draw(st.lists(st.sampled_from(events), max_size=6))
    things, _ = store()
    for kind, thing in data.draw(st.permutations(doubled)):
        if kind == "DELETED":
            things.deleted(thing)
        elif data.draw(st.booleans()):
            things.remember(thing)
        else:
            things.seen(thing)
    assert {thing.name: thing for thing in things} == live


@given(histories(), st.data())
def test_a_list_after_any_gap_in_the_events_ends_in_the_same_state(
    history: tuple[list[tuple[str, Thing]], dict[str, Thing]], data: st.DataObject
) -> None:
    events, live = history
    things, _ = store()
    for kind, thing in events:
        if data.draw(st.booleans()):
            things.deleted(thing) if kind == "DELETED" else things.seen(thing)
    things.replace(list(live.values()), str(len(events)))
    assert {thing.name: thing for thing in things} == live


def test_the_last_state_of_an_object_is_reported_with_its_deletion() -> None:
    things, changes = store()
    things.seen(OLD)
    last = replace(NEW, group="last")
    things.deleted(last)
    assert changes[-1] == (last, None)
    assert things.group(OLD.group) == ()
