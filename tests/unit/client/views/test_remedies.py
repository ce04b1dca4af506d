"""What an answer of the API server means for a user."""

import json
from typing import Any

import pytest

from ddpjob.views.exit_codes import ExitCode, exit_code
from ddpjob.views.remedies import with_remedy
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
)


def answer(code: int, message: str, **status: Any) -> ApiError:
    return refused(code, json.dumps({"kind": "Status", "message": message, **status}).encode(), "GET /x")


def refused(code: int, body: bytes, request: str) -> ApiError:
    return with_remedy(error_of_answer(code, body, {}, request))


@pytest.mark.parametrize(
    ("error", "kind", "code", "remedy"),
    [
        (answer(401, "Unauthorized"), Unauthorized, ExitCode.CLUSTER, "sign in"),
        (answer(403, "user may not"), Forbidden, ExitCode.CLUSTER, "missing permission"),
        (answer(403, "exceeded quota: q"), Forbidden, ExitCode.CLUSTER, "kubectl describe quota"),
        (answer(403, "admission webhook x denied"), Forbidden, ExitCode.CLUSTER, "owner of the webhook"),
        (answer(404, 'ddpjobs "x" not found'), NotFound, ExitCode.NOT_FOUND, ""),
        (answer(404, "the server could not find the requested resource"), NotFound, ExitCode.NOT_FOUND, "crd"),
        (answer(409, "exists", reason="AlreadyExists"), AlreadyExists, ExitCode.USAGE, ""),
        (answer(409, "changed", reason="Conflict"), Conflict, ExitCode.FAILED, "try again"),
        (answer(410, "too old"), Expired, ExitCode.CLUSTER, ""),
        (answer(422, "is invalid"), Invalid, ExitCode.USAGE, ""),
        (answer(429, "slow down"), Unavailable, ExitCode.CLUSTER, "try again"),
        (answer(500, "etcd"), Unavailable, ExitCode.CLUSTER, "try again"),
        (refused(503, b"the watch is silent", "GET /healthz"), Unavailable, ExitCode.CLUSTER, "try again"),
        (refused(404, b"<html>", "GET /x"), NotFound, ExitCode.NOT_FOUND, ""),
    ],
)
def test_a_refusal_has_a_kind_an_exit_code_and_a_remedy(
    error: ApiError, kind: type[ApiError], code: ExitCode, remedy: str
) -> None:
    assert type(error) is kind
    assert exit_code(error) is code
    assert remedy in error.remedy


def test_what_stands_before_the_api_server_is_quoted() -> None:
    assert "503 Service Unavailable: the watch is silent" in str(refused(503, b"the watch is silent", "GET /healthz"))


def test_the_fields_that_the_server_names_are_kept() -> None:
    causes = [{"field": "spec.nodes", "message": "too many"}, {"field": "<nil>", "message": "odd"}]
    error = answer(422, "is invalid", details={"causes": causes})
    assert isinstance(error, Invalid)
    assert error.fields == (("spec.nodes", "too many"), ("", "odd"))


def test_unknown_fields_are_read_from_the_message_of_strict_decoding() -> None:
    error = answer(400, 'strict decoding error: unknown field "spec.nods", unknown field "spec.x"')
    assert isinstance(error, Invalid)
    assert [path for path, _ in error.fields] == ["spec.nods", "spec.x"]
