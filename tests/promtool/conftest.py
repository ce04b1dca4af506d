"""The image that has promtool."""

import pytest

from hack.cache import BUILD
from hack.checks.promtool import Promtool, promtool_in_image


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    return promtool_in_image(BUILD / "log/promtool.log")
