"""Which images have an SBOM in a release, and what a machine without an engine reads."""

from pathlib import Path

import pytest

from hack.console import StepError
from hack.images.image import EXAMPLES, IMAGES
from hack.release.image_sboms import PUBLISHED, file_name, image_sboms
from hack.release.settings import Release

RELEASE = Release("1.2.3", 1_700_000_000, registry="", url="")


def test_every_image_that_a_user_pulls_has_a_file_of_its_own() -> None:
    assert [file_name(image, RELEASE) for image in PUBLISHED] == [
        "ddpjob-operator-1.2.3.cdx.json",
        "ddpjob-torch-1.2.3.cdx.json",
        "ddpjob-trainer-1.2.3.cdx.json",
        "ddpjob-examples-1.2.3.cdx.json",
    ]
    assert set(PUBLISHED) == {*IMAGES, EXAMPLES}


def test_without_an_engine_the_error_says_how_to_release_without_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DDPJOB_CLUSTER", "registry")
    with pytest.raises(StepError, match="make release ARGS=--without-images"):
        image_sboms(RELEASE, tmp_path / "log")
