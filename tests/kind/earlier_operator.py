"""The operator's image of an earlier version, on the nodes of the cluster."""

import os
from pathlib import Path

import pytest

from hack.cache import BUILD, only_one
from hack.cluster.engine import choose_engine
from hack.cluster.node_image import base_image
from hack.cluster.programs import TOOLS, programs_folder
from hack.console import run_step, say
from hack.images.build_settings import build_settings
from hack.images.image import Image
from hack.images.load import load_images
from tests.earlier import REVISION

TAG = "earlier"
_IMAGE = Image(f"ddpjob-operator:{TAG}", "images/operator/Dockerfile", "", "")
_LOG = BUILD / "log/earlier.log"


def have_earlier_image(sources: Path) -> None:
    """Build it once, and load it on the nodes that lack it; the test is skipped where the nodes belong to another user.

    Args:
        sources: where the earlier version was unpacked.
    """
    if os.environ.get("USE_EXISTING_CLUSTER") == "1":
        pytest.skip("the nodes of this cluster are not ours to load an earlier image on")
    keyed = _IMAGE.keyed(REVISION[:16])
    with only_one("set-up", say):
        engine = choose_engine(_LOG)
        if engine.output("image", "inspect", keyed) is None:
            base_image(engine, "trixie", _LOG)
            with build_settings(engine) as settings:
                command = [engine.program, "build", "-f", str(sources / _IMAGE.dockerfile), "-t", keyed, *settings]
                run_step("image of the earlier operator", [*command, str(sources)], _LOG, env=engine.environment)
        assert engine.output("tag", keyed, _IMAGE.local_name) is not None
        load_images(engine, {_IMAGE: keyed}, programs_folder(_LOG, TOOLS), _LOG)
