"""A pod is a process of this machine, with what its container would have."""

from pathlib import Path
from typing import Any

import pytest
from local_jobs import manifest_of, start

from ddpjob.local.errors import LocalError


def test_a_pod_becomes_the_launcher_with_addresses_of_this_machine(tmp_path: Path) -> None:
    process = start(manifest_of(trainer={"image": "i", "script": "train.py", "args": ["50"]}), tmp_path, ordinal=1)
    assert process.arguments == ("/venv/bin/python", "/run/launcher.pyz", "50")
    assert process.folder == tmp_path
    environment = process.environment
    assert environment["DDPJOB_RENDEZVOUS_HOST"] == "127.0.0.1"
    assert environment["PET_RDZV_ENDPOINT"] == "127.0.0.1:29500"
    assert environment["DDPJOB_METRICS_PORT"] == "9403"
    assert environment["PET_NNODES"] == "2"
    assert environment["PET_NPROC_PER_NODE"] == "2"
    assert environment["HOME"] == "/home/me"
    assert environment["DDPJOB_LOCAL"] == "1"
    # What this process was itself launched with is not its programs' business.
    assert "RANK" not in environment
    assert "PET_MASTER_ADDR" not in environment


def test_a_static_rendezvous_is_at_this_machine_s_address(tmp_path: Path) -> None:
    environment = start(manifest_of(rendezvous={"backend": "static"}), tmp_path, ordinal=1).environment
    assert (environment["PET_MASTER_ADDR"], environment["PET_NODE_RANK"]) == ("127.0.0.1", "1")
    assert "PET_RDZV_ENDPOINT" not in environment


def test_a_working_folder_below_a_mount_need_not_be_there_before(tmp_path: Path) -> None:
    trainer = {
        "image": "i",
        "script": "a",
        "workingDir": "/v/deep",
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    template = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    assert start(manifest_of(trainer=trainer, template=template), tmp_path).folder == tmp_path / "pod/volumes/v/deep"


@pytest.mark.parametrize(
    ("trainer", "template", "told"),
    [
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, {}, "the volume v does not exist"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a volume of kind secret needs a cluster",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
            "without a cluster the ConfigMap c must be in the same file",
        ),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {}, "spec.trainer.envFrom: s is in a cluster"),
        (
            {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {},
            "spec.trainer.env: the value of T comes from a cluster",
        ),
        ({"workingDir": "/nowhere"}, {}, "spec.trainer.workingDir: /nowhere is not a folder on this machine"),
        ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, {}, "requests 2 GPUs of its own, and this machine has 1"),
    ],
)
def test_what_needs_a_cluster_is_named_with_its_field(
    tmp_path: Path, trainer: dict[str, Any], template: dict[str, Any], told: str
) -> None:
    manifest = manifest_of(trainer={"image": "i", "script": "a", **trainer}, template={"spec": template})
    with pytest.raises(LocalError, match=told):
        start(manifest, tmp_path, gpus=("0",))


def test_optional_sources_may_be_missing_and_given_ones_are_taken(tmp_path: Path) -> None:
    trainer = {
        "image": "i",
        "script": "a",
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "s", "optional": True}}],
        "env": [
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}
    environment = start(manifest_of("digits", config_map, trainer=trainer), tmp_path).environment
    assert (environment["P_k"], environment["K"], environment["N"]) == ("v", "v", "digits-a0-0")
    assert "S" not in environment


def test_each_node_has_gpus_of_its_own(tmp_path: Path) -> None:
    trainer = {"image": "i", "script": "a", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    found = [
        start(manifest_of(trainer=trainer), tmp_path, ordinal, gpus=("0", "1", "4", "5")).environment
        for ordinal in (0, 1)
    ]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in found] == ["0,1", "4,5"]


def test_a_working_directory_on_a_folder_of_this_machine_is_not_created(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    manifest = manifest_of(
        trainer={
            "image": "i",
            "script": "a.py",
            "workingDir": "/data/new",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        template={"spec": {"volumes": [{"name": "data", "hostPath": {"path": str(tmp_path / "data")}}]}},
        host_paths=[tmp_path],
    )
    with pytest.raises(LocalError, match=r"spec.trainer.workingDir: .*/data/new is not a folder on this machine"):
        start(manifest, tmp_path)
    (tmp_path / "data/new").mkdir()
    assert start(manifest, tmp_path).folder == tmp_path / "data/new"
