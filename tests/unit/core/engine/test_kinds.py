"""Whose an existing object is, by its kind."""

from typing import Any

import pytest

from ddpjob_core.api.constants import LABEL_MANAGED_BY
from ddpjob_core.engine.kinds import KINDS, Lookup, alteration
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


def pod(**changes: Any) -> Json:
    metadata = {"name": "digits-a0-0", "labels": {**LABELS, "team": "y"}, **OWNED, **changes.pop("metadata", {})}
    containers = [{"name": "trainer"}]
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": containers, **changes},
    }


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        (pod(), ""),
        (pod(containers=[{"name": "trainer"}, {"name": "istio-proxy"}], tolerations=[{}]), ""),
        (pod(metadata={"labels": {**LABELS, "team": "x"}}), ""),
        (pod(restartPolicy="Always"), "spec.restartPolicy from Never to Always"),
        (pod(metadata={"name": "team-x-digits-a0-0"}), "metadata.name from digits-a0-0 to team-x-digits-a0-0"),
        (pod(metadata={"labels": {**LABELS, LABEL_MANAGED_BY: "helm"}}), f"metadata.labels[{LABEL_MANAGED_BY}]"),
        (pod(metadata={"labels": None}), f"metadata.labels[{LABEL_MANAGED_BY}]"),
        (pod(metadata=OF_ANOTHER), "metadata.ownerReferences"),
        (pod(containers=[{"name": "main"}]), "spec.containers"),
        (pod(containers=None), "spec.containers"),
    ],
)
def test_what_was_changed_on_the_way_is_named_where_it_is_vital(found: Json, changed: str) -> None:
    assert alteration(KINDS["Pod"], JOB, pod(), found) == changed


def test_a_launcher_that_was_changed_on_the_way_is_not_used() -> None:
    wanted = {"kind": "ConfigMap", "metadata": {"name": "l", **OWNED}, "binaryData": {"launcher.pyz": "AAAA"}}
    kind = KINDS["ConfigMap"]
    assert alteration(kind, JOB, wanted, {**wanted, "immutable": True}) == ""
    assert alteration(kind, JOB, wanted, {**wanted, "binaryData": {"launcher.pyz": "BBBB"}}) == "binaryData"


def test_only_pods_are_validated_strictly() -> None:
    assert [name for name, kind in KINDS.items() if kind.strict] == ["Pod"]


def test_what_is_watched_is_read_from_a_list_and_neither_configmaps_nor_secrets_are_ever_read() -> None:
    assert {name for name, kind in KINDS.items() if kind.lookup is Lookup.LIST} == {"Pod", "Service", "NetworkPolicy"}
    assert all(kind.watched for kind in KINDS.values() if kind.lookup is Lookup.LIST)
    assert [name for name, kind in KINDS.items() if kind.lookup is Lookup.NONE] == ["ConfigMap", "Secret"]
