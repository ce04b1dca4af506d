"""The SBOM of an image, as the container engine of this machine has it."""

import json

import pytest

from hack.checks.promtool import Promtool
from hack.console import StepError
from hack.release.image_sboms import _container, sbom_of_image
from hack.release.settings import Release

RELEASE = Release("1.2.3", 1_700_000_000, registry="", url="")
NAME = "ddpjob-prometheus"

pytestmark = pytest.mark.timeout(600)


def test_the_sbom_of_an_image_is_twice_the_same_and_names_its_packages_and_its_id(promtool: Promtool) -> None:
    engine = promtool.engine
    texts = {sbom_of_image(engine, NAME, promtool.image, RELEASE) for _ in range(2)}
    (text,) = texts
    document = json.loads(text)
    described = document["metadata"]["component"]
    identity = (engine.output("image", "inspect", "--format", "{{.Id}}", promtool.image) or "").strip()
    assert (described["name"], described["version"]) == (NAME, RELEASE.version)
    assert described["properties"] == [
        {"name": "ddpjob:image-id", "value": f"sha256:{identity.removeprefix('sha256:')}"}
    ]
    # dpkg in the image knows the same.
    command = ["run", "--rm", "--network=none", "--entrypoint", "/usr/bin/dpkg-query", promtool.image]
    listed = (engine.output(*command, "-W", "-f", "${Package} ${Version}\n") or "").splitlines()
    assert listed
    assert sorted(f"{each['name']} {each['version']}" for each in document["components"]) == sorted(listed)


def test_no_container_is_left_of_an_image_that_was_read(promtool: Promtool) -> None:
    engine = promtool.engine
    with _container(engine, promtool.image) as container:
        assert engine.output("container", "inspect", container) is not None
    assert engine.output("container", "inspect", container) is None


def test_an_image_that_is_not_there_is_not_fetched(promtool: Promtool) -> None:
    with pytest.raises(StepError, match=r"has no image docker\.io/library/ddpjob-nothing:1"):
        sbom_of_image(promtool.engine, "ddpjob-nothing", "docker.io/library/ddpjob-nothing:1", RELEASE)
