"""Answers of the API server become the errors that the reconciler and the command line tell apart."""

import json
from typing import Any

import pytest

from ddpjob_core.api.answers import error_of_answer
from ddpjob_core.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
    Unexpected,
    WebhookFailed,
)

_TOLERATION = {"reason": "FieldValueInvalid", "message": "Invalid value", "field": "spec.tolerations[0].operator"}
_BY_POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: spec is invalid: no"
_BY_WEBHOOK = 'failed calling webhook "w.example": failed to call webhook: Post "https://w.example/": refused'


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (404, {}, NotFound),
        (409, {"reason": "AlreadyExists"}, AlreadyExists),
        (409, {"reason": "Conflict"}, Conflict),
        (410, {"reason": "Expired"}, Expired),
        (422, {"reason": "Invalid"}, Invalid),
        (400, {"message": 'strict decoding error: unknown field "spec.foo"'}, Invalid),
        (422, {"message": 'Pod "x" is invalid: spec.tol', "details": {"causes": [_TOLERATION]}}, Invalid),
        (422, {"message": f'pods "x" is forbidden: {_BY_POLICY}', "reason": "Invalid"}, Forbidden),
        (422, {"message": "in words of its own", "details": {"causes": [{"message": _BY_POLICY}]}}, Forbidden),
        (422, {"message": 'admission webhook "w.example" denied the request: spec.x: no'}, Forbidden),
        (401, {"message": f'pods "x" is forbidden: {_BY_POLICY}', "reason": "Unauthorized"}, Forbidden),
        (404, {"message": 'admission webhook "w.example" denied the request: no such team'}, Forbidden),
        (500, {"message": 'admission webhook "w.example" denied the request: out of order'}, Forbidden),
        (413, {"message": f'pods "x" is forbidden: {_BY_POLICY}'}, Forbidden),
        (500, {"message": f"Internal error occurred: {_BY_WEBHOOK}"}, WebhookFailed),
        (504, {"message": "request did not complete within the allotted timeout"}, Unavailable),
        (400, {"message": 'admission webhook "quota.example" denied the request: later'}, Forbidden),
        (403, {"message": "exceeded quota"}, Forbidden),
        (401, {}, Unauthorized),
        (429, {}, Unavailable),
        (500, {}, Unavailable),
        (503, {}, Unavailable),
        (418, {}, Unexpected),
    ],
)
def test_each_code_is_the_error_that_it_means(code: int, status: dict[str, Any], kind: type[ApiError]) -> None:
    error = error_of_answer(code, json.dumps(status).encode(), {}, "get /x")
    assert type(error) is kind
    assert status.get("message", "").removeprefix("Internal error occurred: ") in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_not_a_status_object_is_still_an_error(body: bytes) -> None:
    assert isinstance(error_of_answer(502, body, {}, "get /x"), Unavailable)


def after(headers: dict[str, str], status: dict[str, object]) -> float | None:
    error = error_of_answer(429, json.dumps(status).encode(), headers, "get /x")
    assert isinstance(error, Unavailable)
    return error.after


def test_the_wait_that_the_server_asks_for_is_known() -> None:
    assert after({"Retry-After": "3"}, {}) == 3
    assert after({}, {"details": {"retryAfterSeconds": 2}}) == 2
    assert after({}, {}) is None


def test_a_wait_that_makes_no_sense_is_bounded_or_ignored() -> None:
    assert after({"Retry-After": "100000"}, {}) == 60
    assert after({"Retry-After": "-5"}, {}) == 0
    assert after({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}) is None


def test_what_the_server_quotes_is_one_printable_line_of_bounded_length() -> None:
    text = 'pods "a" is invalid: \x1b[2Jspec.x: Invalid value:\n"' + "x" * 100_000
    cause = {"message": text, "field": "spec.x"}
    body = json.dumps({"message": text, "details": {"causes": [cause]}}).encode()
    error = error_of_answer(422, body, {}, "POST /x")
    assert isinstance(error, Invalid)
    assert str(error).startswith('pods "a" is invalid: spec.x: Invalid value: "x')
    for each in (str(error), error.fields[0][1]):
        assert each.isprintable()
        assert len(each) == 4096
