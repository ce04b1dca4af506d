"""An image as a file: the same bytes of the same image, and never mistaken for one of a test."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from hack.cluster.engine import Engine, Source
from hack.console import StepError
from hack.images.archive import pack, rename
from hack.images.build import build_images
from hack.images.image import IMAGES, Image, older_names


def layout(folder: Path, moment: int) -> Path:
    """A folder in the layout of OCI, written at some moment."""
    files = {"oci-layout": "{}", "blobs/sha256/b": "layer", "blobs/sha256/a": "config"}
    manifest = {"digest": "sha256:b", "annotations": {"org.opencontainers.image.ref.name": "a:b"}}
    for name, text in {**files, "index.json": json.dumps({"manifests": [manifest]})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        os.utime(folder / name, (moment, moment))
    return folder


def test_the_file_of_an_image_depends_on_the_image_and_its_name_alone(tmp_path: Path) -> None:
    made = []
    for number in range(2):
        folder = layout(tmp_path / f"in-{number}", 1_700_000_000 + number)
        (folder / "oci-layout").chmod(0o600 if number else 0o644)
        rename(folder, "registry.example/ddpjob-operator:1.2.3")
        pack(folder, tmp_path / f"{number}.tar")
        made.append((tmp_path / f"{number}.tar").read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "0.tar") as archive:
        assert archive.getnames() == ["blobs/sha256/a", "blobs/sha256/b", "index.json", "oci-layout"]
        index = archive.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    assert manifest == {
        "digest": "sha256:b",
        "annotations": {"org.opencontainers.image.ref.name": "registry.example/ddpjob-operator:1.2.3"},
    }


def test_an_image_of_a_release_is_neither_that_of_tests_nor_an_older_one_of_it() -> None:
    for image in IMAGES:
        keyed = image.of_release.keyed("0123456789abcdef")
        assert image.of_release.local_name != image.local_name
        assert older_names(f"{keyed}\n{image.of_release.local_name}\n", image, image.keyed("fedcba9876543210")) == []


def test_only_podman_builds_images_that_are_the_same_each_time(tmp_path: Path) -> None:
    image: Image = IMAGES[0].of_release
    docker = Engine("docker", Source.REGISTRY, "a test")
    with pytest.raises(StepError, match="built with podman alone, not with docker"):
        build_images(docker, tmp_path / "log", [image], epoch=1_700_000_000)
