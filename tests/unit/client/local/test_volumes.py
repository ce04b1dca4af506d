"""A pod's volumes are folders on this machine."""

from pathlib import Path
from typing import Any

import pytest
from local_jobs import manifest_of, start

from ddpjob.local.errors import LocalError
from ddpjob.local.process import trainer_container
from ddpjob.local.volumes import Mount, Places, here, make_folders, mounts_of
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observe import job_record


def test_paths_below_a_mount_are_those_of_the_folder_that_replaces_it(tmp_path: Path) -> None:
    manifest = manifest_of(
        "digits",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"main.py": "print(1)"}},
        trainer={
            "image": "i",
            "script": "/code/main.py",
            "args": ["--data=/data/x", "/database", "--out", "/data"],
            "env": [{"name": "WHERE", "value": "/data/$(DDPJOB_NODE_RANK)/$$(X)/$(Y)"}],
            "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "data", "mountPath": "/data/"}],
        },
        template={
            "spec": {
                "volumes": [
                    {"name": "code", "configMap": {"name": "code"}},
                    {"name": "data", "hostPath": {"path": "/srv"}},
                ]
            }
        },
        checkpoint={"claimName": "shared"},
        host_paths=[Path("/srv")],
    )
    process = start(manifest, tmp_path)
    assert process.environment["DDPJOB_PROGRAM"] == str(tmp_path / "pod/volumes/code/main.py")
    assert process.arguments[2:] == ("--data=/srv/x", "/database", "--out", "/srv")
    assert process.environment["WHERE"] == "/srv/0/$(X)/$(Y)"
    assert process.environment["DDPJOB_CHECKPOINT_PATH"] == str(tmp_path / "claims/shared/u1")
    make_folders([Mount("/code", tmp_path / "pod/volumes/code", files=manifest.config_maps["code"])])
    assert (tmp_path / "pod/volumes/code/main.py").read_text() == "print(1)"


def test_the_deepest_mount_holds_a_path() -> None:
    mounts = [Mount("/a", Path("/one")), Mount("/a/b", Path("/two"))]
    assert here("/a/b/c", mounts) == "/two/c"
    assert here("/a/bc", mounts) == "/one/bc"
    assert here("x=/a/b", mounts) == "x=/a/b"


def made(tmp_path: Path, volume: dict[str, Any], mount: dict[str, Any]) -> Path:
    """The path here of /v, where a volume is mounted, once the folders are made."""
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "A", "b": "B"}}
    trainer = {"image": "i", "script": "/v", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    template = {"spec": {"volumes": [{"name": "v", **volume}]}}
    above = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"../k": "K"}}
    manifest = manifest_of("digits", data, above, trainer=trainer, template=template, host_paths=[tmp_path])
    job = job_record({**manifest.job, "metadata": {**manifest.job["metadata"], "uid": "u1"}})
    assert job is not None
    pod = build_pod(job, manifest.spec, 0, 0)
    mounts = mounts_of(pod, trainer_container(pod), Places(tmp_path / "claims", tmp_path / "pod"), manifest.config_maps)
    make_folders(mounts)
    return Path(here("/v", mounts))


def test_the_items_of_a_config_map_are_its_only_files_at_the_paths_they_name(tmp_path: Path) -> None:
    items = [{"key": "a", "path": "deep/x.py"}]
    folder = made(tmp_path, {"configMap": {"name": "c", "items": items}}, {})
    assert [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()] == [Path("deep/x.py")]
    assert (folder / "deep/x.py").read_text() == "A"


def test_a_sub_path_may_be_a_file_of_a_config_map_and_else_is_a_folder_of_the_volume(tmp_path: Path) -> None:
    assert made(tmp_path, {"configMap": {"name": "c"}}, {"subPath": "b"}).read_text() == "B"
    assert made(tmp_path, {"persistentVolumeClaim": {"claimName": "d"}}, {"subPath": "e"}) == tmp_path / "claims/d/e"
    assert (tmp_path / "claims/d/e").is_dir()


def test_a_host_path_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("F")
    assert made(tmp_path, {"hostPath": {"path": str(tmp_path / "file")}}, {}).read_text() == "F"


def test_an_optional_config_map_that_is_not_given_is_an_empty_folder(tmp_path: Path) -> None:
    assert list(made(tmp_path, {"configMap": {"name": "none", "optional": True}}, {}).iterdir()) == []


@pytest.mark.parametrize(
    ("volume", "mount", "told"),
    [
        ({"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}, {}, "the ConfigMap c has no key z"),
        (
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "../../a"}]}},
            {},
            r"\.\./\.\./a is outside the volume",
        ),
        ({"emptyDir": {}}, {"subPath": "../../a"}, r"\.\./\.\./a is outside the volume"),
        ({"persistentVolumeClaim": {"claimName": "../x"}}, {}, r"\.\./x is not a valid name of a claim"),
        ({"name": "/tmp/x", "emptyDir": {}}, {"name": "/tmp/x"}, r"/tmp/x is not a valid name of a volume"),
        ({"name": "../../x", "emptyDir": {}}, {"name": "../../x"}, r"\.\./\.\./x is not a valid name of a volume"),
        ({"name": "d", "configMap": {"name": "d"}}, {"name": "d"}, r"\.\./k is not a valid key of a ConfigMap"),
    ],
)
def test_a_volume_stays_in_its_folder(tmp_path: Path, volume: dict[str, Any], mount: dict[str, Any], told: str) -> None:
    with pytest.raises(LocalError, match=told):
        made(tmp_path, volume, mount)


def test_a_host_path_is_never_created(tmp_path: Path) -> None:
    for mount in ({}, {"subPath": "a"}):
        with pytest.raises(LocalError, match=r"spec.template.spec.volumes: v: .*/not-there.* does not exist"):
            made(tmp_path, {"hostPath": {"path": str(tmp_path / "not-there")}}, mount)
    assert list(tmp_path.iterdir()) == []


def test_a_sub_path_follows_no_link_out_of_its_volume(tmp_path: Path) -> None:
    (tmp_path / "claims/c").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "claims/c/link").symlink_to(tmp_path / "outside")
    with pytest.raises(LocalError, match="link/a is outside the volume"):
        made(tmp_path, {"persistentVolumeClaim": {"claimName": "c"}}, {"subPath": "link/a"})
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_path_that_leaves_its_mount_is_not_one_below_it() -> None:
    mounts = [Mount("/a", Path("/one"))]
    assert here("/a/../../etc", mounts) == "/a/../../etc"
    assert here("--in=/a/b/../../c", mounts) == "--in=/a/b/../../c"
    assert here("/a/b..c", mounts) == "/one/b..c"
