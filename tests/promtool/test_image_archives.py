"""The operator's image of a release: two builds of it without a cache are the same bytes."""

import hashlib
from pathlib import Path

import pytest

from hack.cache import BUILD, only_one
from hack.checks.promtool import Promtool
from hack.console import say
from hack.images.archive import save_archive
from hack.images.build import build_images
from hack.images.image import IMAGES

IMAGE = IMAGES[0].of_release
EPOCH = 1_700_000_000

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def test_two_builds_of_an_image_of_a_release_are_the_same_bytes(promtool: Promtool, tmp_path: Path) -> None:
    engine, log = promtool.engine, BUILD / "log/release-images.log"
    digests = set()
    for number in range(2):
        with only_one("images", say):
            keyed = build_images(engine, log, [IMAGE], epoch=EPOCH)[IMAGE]
            save_archive(engine, keyed, "ddpjob-operator:1.2.3", tmp_path / f"{number}.tar")
            # With it gone, the next one is built from the start.
            assert engine.output("image", "rm", keyed, IMAGE.local_name) is not None
        digests.add(hashlib.sha256((tmp_path / f"{number}.tar").read_bytes()).hexdigest())
    assert len(digests) == 1
