"""Whether the bounds by which a status is fitted are those by which the API server judges it."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ddpjob_core.api.answers import error_of_status
from ddpjob_core.api.errors import Invalid
from ddpjob_core.api.schemas import status_schema
from ddpjob_core.engine.refused_status import paths_of, without
from ddpjob_core.status.bounds import fit
from tests.apiserver.controlplane import ApiError, Client, Json, path_of

NUMBERS = (-(2**70), -1, 2**31, 2**53 + 1, 2**70, 1e301, -1e301, 3)
TEXTS = ("", "x" * 9000, "9999-12-31T23:59:59Z", "Perhaps", "1-2,", "\x1b[2J\u202e")
OTHERS: tuple[Any, ...] = (True, [], {}, ["x"] * 2000, {"a": {}})
WALKS = 80


def condition(kind: str) -> Json:
    when = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": when}


STATUS: Json = {
    "phase": "Running",
    "attempt": 3,
    "podsCreated": True,
    "observedGeneration": 2,
    "restarts": {"counted": 1, "process": 4, "recentTimes": ["2026-01-01T00:00:00Z"], "lastReason": "R"},
    "nodes": {"desired": 2, "ready": 1, "succeededOrdinals": "0-1"},
    "procsPerNode": 4,
    "conditions": [condition("Training"), condition("PodsScheduled"), condition("Suspended")],
    "progress": {"step": 3, "loss": 0.5, "samplesPerSecond": 12.5, "lastStepTime": "2026-01-01T00:00:00Z"},
    "summary": {"loss": "0.5"},
    "failure": {"reason": "R", "message": "m", "rank": 3, "exitCode": 7, "consequences": ["c"]},
    "stacks": [{"attempt": 0, "rank": 1, "ordinal": 1, "text": "File"}],
    "slowest": {
        "attempt": 3,
        "rank": 1,
        "ordinal": 1,
        "pod": "bounds-a3-1",
        "factor": 2.5,
        "what": "Data",
        "time": "2026-01-01T00:00:00Z",
    },
}


@pytest.fixture
def job(admin: Client, namespace: str) -> Json:
    raw = {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": "bounds", "namespace": namespace},
        "spec": {"trainer": {"image": "i", "script": "train.py"}},
    }
    return admin.create(raw)


def put(admin: Client, job: Json, status: Json) -> Json:
    """The status that is stored."""
    current = admin.get(path_of(job))
    stored: Json = admin.replace({**current, "status": status}, subresource="status").get("status", {})
    return stored


def test_what_is_fitted_is_accepted_and_stored_as_it_is(admin: Client, job: Json) -> None:
    rng = Random(20)  # noqa: S311 statuses that can be repeated
    for _ in range(WALKS):
        status = {**STATUS, **{key: spoiled(value, rng) for key, value in STATUS.items() if rng.random() < 0.4}}
        fitted = fit(status, status_schema())
        assert put(admin, job, fitted) == fitted


def spoiled(value: Any, rng: Random) -> Any:
    """The value with something in it, or all of it, replaced."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        chosen = rng.choice(keys)
        spoiled_there = spoiled(value[chosen], rng)
        if isinstance(value, dict):
            return {**value, chosen: spoiled_there}
        return [spoiled_there if index == chosen else each for index, each in enumerate(value)]
    return rng.choice((*NUMBERS, *TEXTS, *OTHERS))


WRONG: tuple[tuple[tuple[str | int, ...], Any], ...] = (
    (("restarts", "process"), 2**40),
    (("progress", "loss"), 1e301),
    (("progress", "lastStepTime"), "soon"),
    (("nodes", "succeededOrdinals"), "all"),
    (("failure", "message"), "x" * 9000),
    (("failure", "consequences"), ["c"] * 17),
    (("conditions", 1, "type"), "Unheard"),
    (("conditions", 0, "status"), "Perhaps"),
    (("phase",), "Walking"),
)


@pytest.mark.parametrize(
    "wrong", [*((each,) for each in WRONG), WRONG], ids=[*(str(each[0][-1]) for each in WRONG), "all"]
)
def test_what_the_api_server_names_is_found_in_the_status_and_the_rest_is_accepted(
    admin: Client, job: Json, wrong: tuple[tuple[tuple[str | int, ...], Any], ...]
) -> None:
    status = fit(STATUS, status_schema())
    for place, value in wrong:
        *way, last = place
        inner: Any = status
        for key in way:
            inner = inner[key]
        inner[last] = value
    with pytest.raises(ApiError) as refused:
        put(admin, job, status)
    refusal = error_of_status(refused.value.code, refused.value.status)
    assert isinstance(refusal, Invalid)
    left = without(status, paths_of(refusal))
    assert left is not None, refusal.fields
    assert all(place not in set(places(left)) for place, _ in wrong if "conditions" not in place)
    assert len(left["conditions"]) == 3 - len({place[1] for place, _ in wrong if place[0] == "conditions"})
    stored = put(admin, job, left)
    assert (stored["attempt"], stored["podsCreated"], stored["restarts"]["counted"]) == (3, True, 1)


def places(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The keys and indexes that lead to each value inside."""
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*way, key))


@pytest.mark.parametrize("loss", [2.0, 1e18, 0.25])
def test_a_loss_without_a_fraction_keeps_nobody_from_changing_the_job(admin: Client, job: Json, loss: float) -> None:
    put(admin, job, {**STATUS, "progress": {"step": 3, "loss": loss}})
    assert put(admin, job, {**STATUS, "progress": {"step": 4, "loss": int(loss)}})["progress"]["step"] == 4
    assert admin.patch(path_of(job), {"spec": {"suspend": True}})["spec"]["suspend"] is True
