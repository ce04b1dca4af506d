"""spec.checkpoint: the claim, the mounts, and what the program learns of it."""

from typing import Any

import pytest
from world import World, environment_of, spec_of, words

from ddpjob_core.children.checkpoint import build_claim
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import JobRecord

JOB = JobRecord("team", "digits", "job-uid", "1", 1, deleting=False, spec=None)


def pod(ordinal: int = 0, template: dict[str, Any] | None = None, **checkpoint: Any) -> dict[str, Any]:
    return build_pod(JOB, spec_of(checkpoint=checkpoint, template=template or {}), 0, ordinal)


def mounts(manifest: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["mountPath"] for item in manifest["spec"]["containers"][0]["volumeMounts"]}


def test_an_existing_claim_is_mounted_and_the_program_gets_the_jobs_own_folder() -> None:
    shared = {"claimName": "shared", "path": "/data/runs", "keepLast": 5, "resumeFrom": "older"}
    manifest = pod(**shared)
    assert mounts(manifest)["ddpjob-checkpoints"] == "/data/runs"
    assert {"name": "ddpjob-checkpoints", "persistentVolumeClaim": {"claimName": "shared"}} in manifest["spec"][
        "volumes"
    ]
    told = environment_of(JOB, spec_of(checkpoint=shared))
    assert told["DDPJOB_CHECKPOINT_PATH"] == "/data/runs/job-uid"
    assert (told["DDPJOB_CHECKPOINT_KEEP_LAST"], told["DDPJOB_RESUME_FROM"]) == ("5", "older")


def test_a_volume_for_one_node_is_mounted_on_ordinal_0_alone_and_told_to_all() -> None:
    first, second = (pod(ordinal, claimName="disk", accessMode="ReadWriteOnce") for ordinal in (0, 1))
    assert "ddpjob-checkpoints" in mounts(first)
    assert "ddpjob-checkpoints" not in mounts(second)
    assert all("persistentVolumeClaim" not in volume for volume in second["spec"]["volumes"])
    spec = spec_of(checkpoint={"claimName": "disk", "accessMode": "ReadWriteOnce"})
    assert "DDPJOB_CHECKPOINT_PATH" in environment_of(JOB, spec, ordinal=1)


def test_without_checkpoint_nothing_is_mounted_or_told() -> None:
    manifest = build_pod(JOB, spec_of(), 0, 0)
    assert not [name for name in environment_of(JOB, spec_of()) if "CHECKPOINT" in name]
    assert "fsGroup" not in manifest["spec"]["securityContext"]


@pytest.mark.parametrize(
    ("users", "group"),
    [({}, 1000), ({"runAsUser": 7}, 1000), ({"fsGroup": 5}, 5)],
)
def test_a_new_disk_is_given_to_a_group_unless_the_template_names_one(users: dict[str, Any], group: int) -> None:
    manifest = pod(template={"spec": {"securityContext": users}}, claimName="disk")
    context = manifest["spec"]["securityContext"]
    assert context.items() >= {"fsGroupChangePolicy": "OnRootMismatch", **users, "fsGroup": group}.items()


@pytest.mark.parametrize(("retain", "owned"), [("Retain", False), ("Delete", True)])
def test_a_claim_that_is_made_goes_with_its_job_only_where_it_is_asked_to(retain: str, owned: bool) -> None:  # noqa: FBT001
    checkpoint = spec_of(checkpoint={"size": "5Gi", "storageClassName": "fast", "retain": retain}).checkpoint
    assert checkpoint is not None
    claim = build_claim(JOB, checkpoint)
    assert claim is not None
    assert claim["metadata"]["name"] == "digits-checkpoints"
    assert ("ownerReferences" in claim["metadata"]) is owned
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "5Gi"}},
        "storageClassName": "fast",
    }


def test_a_claim_is_made_once_an_attempt_and_before_the_pods() -> None:
    world = World(spec=spec_of(checkpoint={"size": "1Gi"}))
    world.settle()
    made = words(world.requests)
    assert made.count("Create PersistentVolumeClaim") == 1
    assert made.index("Create PersistentVolumeClaim") < made.index("Create Pod")
    assert made.count("Create Pod") == 2
