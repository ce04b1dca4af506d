"""Which program changed the spec of a job, and what, as an Event says it."""

from typing import Any

import pytest

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord
from ddpjob_core.observations.spec_change import SpecChange, Writer, changed_fields, last_writer, spec_change


def entry(manager: str, second: int, *fields: str, **more: Any) -> dict[str, Any]:
    owned = {f"f:{field}": {} for field in fields}
    return {"manager": manager, "time": f"2026-01-01T12:00:{second:02}Z", "fieldsV1": owned, **more}


OLD, NEW = Writer("kubectl-create", "2026-01-01T12:00:00Z"), Writer("kubectl-edit", "2026-01-01T12:00:09Z")


@pytest.mark.parametrize(
    ("entries", "writer"),
    [
        ([entry("a", 1, "spec"), entry("b", 2, "spec")], "b"),
        ([entry("b", 2, "spec"), entry("a", 1, "spec")], "b"),
        ([entry("a", 1, "spec"), entry("b", 1, "spec")], "b"),
        # Not the operator, which writes the status, nor who only labels.
        ([entry("a", 1, "spec"), entry("o", 2, "status", subresource="status")], "a"),
        ([entry("a", 1, "spec"), entry("o", 2, "spec", subresource="status")], "a"),
        ([entry("a", 1, "spec"), entry("l", 2, "metadata")], "a"),
        (
            [entry("a", 1, "spec"), entry("kube-controller-manager", 2, "spec", subresource="scale")],
            "kube-controller-manager",
        ),
        ([entry("evil\n\x1b[31m" + "x" * 200, 1, "spec")], "evil"),
        ([], None),
        ([None, 1, {}, {"manager": 1, "fieldsV1": {"f:spec": {}}, "time": "x"}, {"fieldsV1": []}], None),
        ({"a": 1}, None),
        (None, None),
    ],
)
def test_the_last_writer_of_the_spec_is_found(entries: Any, writer: str | None) -> None:
    found = last_writer({"managedFields": entries})
    assert (found is None) == (writer is None)
    if found is not None and writer is not None:
        assert found.name.startswith(writer)
        assert found.name.isprintable()
        assert len(found.name) <= 128


def spec(**fields: Any) -> DDPJobSpec:
    return DDPJobSpec.model_validate({"trainer": {"image": "i", "script": "t.py"}, **fields})


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        (spec(), spec(), ()),
        (spec(nodes=2), spec(nodes=4), ("spec.nodes",)),
        (spec(), spec(suspend=True, nodes=3), ("spec.nodes", "spec.suspend")),
        (
            spec(restart={"maxRestarts": 1}),
            spec(restart={"maxRestarts": 2, "backoffSeconds": 7}),
            ("spec.restart.maxRestarts", "spec.restart.backoffSeconds"),
        ),
        (spec(), spec(elastic={"minNodes": 1, "maxNodes": 4}), ("spec.elastic",)),
        (spec(), spec(template={"metadata": {"labels": {"a": "b"}}}), ("spec.template",)),
    ],
)
def test_changed_fields_are_named_as_in_the_yaml(
    before: DDPJobSpec, after: DDPJobSpec, fields: tuple[str, ...]
) -> None:
    assert sorted(changed_fields(before, after)) == sorted(fields)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (SpecChange(("kubectl-edit",), ("spec.nodes",)), "kubectl-edit changed spec.nodes (generation 3)"),
        (SpecChange((), ("spec.nodes",)), "spec.nodes was changed (generation 3)"),
        (SpecChange((), ("spec.nodes", "spec.suspend")), "spec.nodes, spec.suspend were changed (generation 3)"),
        (SpecChange(("helm",), ()), "helm changed the spec (generation 3)"),
        (SpecChange(), "the spec was changed (generation 3)"),
        (
            SpecChange(("kubectl",), tuple(f"spec.{name}" for name in "abcdef")),
            "kubectl changed spec.a, spec.b, spec.c, spec.d and 2 more (generation 3)",
        ),
    ],
)
def test_a_change_is_said_in_a_sentence(change: SpecChange, sentence: str) -> None:
    assert change.sentence(3) == sentence


@pytest.mark.parametrize(
    ("before", "now", "by"), [(OLD, NEW, ("kubectl-edit",)), (OLD, OLD, ()), (None, NEW, ()), (OLD, None, ())]
)
def test_no_program_is_named_that_may_not_have_made_the_change(
    before: Writer | None, now: Writer | None, by: tuple[str, ...]
) -> None:
    # Who only removes a field owns nothing, and leaves the entries of all others as they were.
    assert spec_change(spec(), before, spec(nodes=3), now) == SpecChange(by, ("spec.nodes",))


def record(generation: int, earlier: JobRecord | None, *entries: dict[str, Any], **fields: Any) -> JobRecord:
    metadata = {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": str(generation), "generation": generation}
    raw = {
        "metadata": {**metadata, "managedFields": list(entries)},
        "spec": {"trainer": {"image": "i", "script": "t.py"}, **fields},
        "status": {"attempt": 0, "podsCreated": False, "observedGeneration": 1},
    }
    found = job_record(raw, earlier)
    assert found is not None
    return found


def test_a_job_that_is_seen_for_the_first_time_has_no_change() -> None:
    assert record(3, None, entry("a", 1, "spec")).change is None


def test_a_change_is_kept_until_it_has_been_reported_and_joined_by_the_next() -> None:
    first = record(1, None, entry("a", 1, "spec"))
    second = record(2, first, entry("a", 1, "spec"), entry("b", 2, "spec"), suspend=True)
    assert second.change == SpecChange(("b",), ("spec.suspend",))
    same = record(2, second, entry("a", 1, "spec"), entry("b", 2, "spec"), suspend=True)
    assert same.change == second.change
    third = record(3, same, entry("a", 1, "spec"), entry("b", 2, "spec"), entry("c", 3, "spec"), suspend=True, nodes=2)
    assert third.change == SpecChange(("b", "c"), ("spec.suspend", "spec.nodes"))


def test_a_program_that_has_only_labelled_the_job_since_is_not_blamed_for_what_another_removes() -> None:
    first = record(1, None, entry("argocd", 1, "spec"), suspend=True)
    labelled = record(1, first, entry("argocd", 5, "spec", "metadata"), suspend=True)
    removed = record(2, labelled, entry("argocd", 5, "spec", "metadata"))
    assert removed.change == SpecChange((), ("spec.suspend",))


def test_of_generations_that_were_missed_nobody_is_named() -> None:
    first = record(1, None, entry("a", 1, "spec"))
    third = record(3, first, entry("a", 1, "spec"), entry("bob", 9, "spec"), nodes=2, suspend=True)
    assert third.change == SpecChange((), ("spec.nodes", "spec.suspend"))


def test_changes_that_are_never_reported_do_not_add_up() -> None:
    found = record(1, None, entry("a", 1, "spec"))
    for generation in range(2, 200):
        writers = [entry(f"program-{generation % 7}", generation % 60, "spec")]
        found = record(generation, found, *writers, nodes=generation)
    assert found.change is not None
    assert len(found.change.by) <= 4
    assert found.change.fields == ("spec.nodes",)


def test_another_spec_of_the_same_generation_is_read_where_another_program_has_written_it() -> None:
    first = record(2, None, entry("a", 1, "spec"), nodes=2)
    restored = record(2, first, entry("b", 9, "spec"), nodes=7)
    assert restored.spec is not None
    assert restored.spec.nodes == 7
    assert restored.change is None
