"""The audit policy of docs/security.md: who changed a job stands in the API server's log, with what was changed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.controlplane import ROOT, ApiError, ControlPlane, Json
from tests.apiserver.documents import objects_of
from tests.apiserver.rights import CHANGE_JOBS, CREATE_PODS, READ_JOBS
from tests.apiserver.tenants import new_tenant

pytestmark = pytest.mark.skipif(
    os.environ.get("DDPJOB_FULL") != "1", reason="starts an API server of its own: make test-full"
)


@pytest.fixture
def audited(assets: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    [policy] = [each for each in objects_of(ROOT / "docs/security.md") if each["kind"] == "Policy"]
    plane = ControlPlane.start(assets, tmp_path, audit_policy=policy)
    yield plane
    plane.stop()


def test_who_created_and_who_suspended_a_job_and_who_was_refused(audited: ControlPlane) -> None:
    writer = new_tenant(audited, CHANGE_JOBS, CREATE_PODS)
    reader = new_tenant(audited, READ_JOBS)
    job = writer.client.create(writer.job())
    job["spec"]["suspend"] = True
    writer.client.replace(job)
    with pytest.raises(ApiError):
        reader.client.create(reader.job())
    entries = [json.loads(line) for line in audited.audit_log.read_text().splitlines()]
    found = [_said(each) for each in entries if "dryRun" not in each["requestURI"]]
    accounts = [f"system:serviceaccount:{each.namespace}:" for each in (writer, reader)]
    assert [(verb, code, suspend) for _, verb, code, suspend in found] == [
        ("create", 201, False),
        ("update", 200, True),
        ("create", 403, None),
    ]
    assert all(user.startswith(accounts[index]) for (user, *_), index in zip(found, (0, 0, 1), strict=True)), found


def _said(entry: Json) -> tuple[str, str, int, bool | None]:
    """User, verb, code of the answer and the job's `suspend` in the request."""
    spec = entry.get("requestObject", {}).get("spec", {})
    return entry["user"]["username"], entry["verb"], entry["responseStatus"]["code"], spec.get("suspend")
