"""Answers of the API server become the failures that the reconciler tells apart."""

import json

import pytest

from ddpjob_core.engine.errors import (
    AlreadyExists,
    ApiFailure,
    Conflict,
    Fatal,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Retryable,
    failure_of,
)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (404, {}, NotFound),
        (409, {"reason": "AlreadyExists"}, AlreadyExists),
        (409, {"reason": "Conflict"}, Conflict),
        (410, {"reason": "Expired"}, Gone),
        (422, {"reason": "Invalid"}, Invalid),
        (400, {"message": 'strict decoding error: unknown field "spec.foo"'}, Invalid),
        (400, {"message": 'admission webhook "quota.example" denied the request: later'}, Forbidden),
        (403, {"message": "exceeded quota"}, Forbidden),
        (401, {}, Retryable),
        (429, {}, Retryable),
        (500, {}, Retryable),
        (503, {}, Retryable),
        (418, {}, Fatal),
    ],
)
def test_each_code_is_the_failure_that_it_means(code: int, status: dict[str, str], kind: type[ApiFailure]) -> None:
    failure = failure_of(code, json.dumps(status).encode(), {})
    assert type(failure) is kind
    assert status.get("message", "") in str(failure)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_status_object_is_still_a_failure(body: bytes) -> None:
    assert isinstance(failure_of(502, body, {}), Retryable)


def after(headers: dict[str, str], status: dict[str, object]) -> float | None:
    failure = failure_of(429, json.dumps(status).encode(), headers)
    assert isinstance(failure, Retryable)
    return failure.after


def test_the_wait_that_the_server_asks_for_is_told() -> None:
    assert after({"Retry-After": "3"}, {}) == 3
    assert after({}, {"details": {"retryAfterSeconds": 2}}) == 2
    assert after({}, {}) is None


def test_a_wait_that_makes_no_sense_is_bounded_or_ignored() -> None:
    assert after({"Retry-After": "100000"}, {}) == 60
    assert after({"Retry-After": "-5"}, {}) == 0
    assert after({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}) is None
