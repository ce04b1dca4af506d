"""Whose an existing object is, by its kind."""

import pytest

from ddpjob_core.api.constants import LABEL_MANAGED_BY
from ddpjob_core.engine.kinds import KINDS
from ddpjob_core.engine.protocols import Json
from ddpjob_core.observations.observed import JobRecord

JOB = JobRecord("default", "digits", "job-uid", "1", 1, deleting=False, spec=None)
OWNED = {"ownerReferences": [{"uid": "job-uid", "controller": True}]}
OF_ANOTHER = {"ownerReferences": [{"uid": "other", "controller": True}]}
LABELS = {"app.kubernetes.io/managed-by": "ddpjob", "ddpjob.dev/job": "digits"}


@pytest.mark.parametrize("kind", ["Pod", "Service", "ConfigMap", "PersistentVolumeClaim"])
def test_an_object_is_its_controllers(kind: str) -> None:
    manifest = {"kind": kind, "metadata": OWNED}
    assert KINDS[kind].is_own({"metadata": OWNED}, JOB, manifest)
    assert not KINDS[kind].is_own({"metadata": OF_ANOTHER}, JOB, manifest)
    assert not KINDS[kind].is_own({"metadata": {"labels": LABELS}}, JOB, manifest)


@pytest.mark.parametrize(
    ("existing", "own"),
    [
        ({"labels": LABELS}, True),
        ({"labels": {**LABELS, "ddpjob.dev/job": "another"}}, False),
        ({"labels": {**LABELS, LABEL_MANAGED_BY: "helm"}}, False),
        ({}, False),
        ({"labels": LABELS, **OF_ANOTHER}, False),
        (OWNED, True),
    ],
)
def test_a_retained_claim_serves_every_job_of_its_name(existing: Json, *, own: bool) -> None:
    retained = {"kind": "PersistentVolumeClaim", "metadata": {"labels": LABELS}}
    assert KINDS["PersistentVolumeClaim"].is_own({"metadata": existing}, JOB, retained) is own


def test_a_pod_that_the_watch_does_not_select_is_not_taken_for_created() -> None:
    assert KINDS["Pod"].objection({"metadata": {"labels": LABELS}}) == ""
    assert "delete the pod" in KINDS["Pod"].objection({"metadata": {"labels": {LABEL_MANAGED_BY: "helm"}}})
    assert "delete the pod" in KINDS["Pod"].objection({"metadata": {}})


def test_only_pods_are_validated_strictly_and_only_the_secret_is_not_read() -> None:
    assert [name for name, kind in KINDS.items() if kind.strict] == ["Pod"]
    assert [name for name, kind in KINDS.items() if not kind.readable] == ["Secret"]
