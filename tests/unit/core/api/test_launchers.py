"""The table of launchers is complete, and names what there is."""

import pytest

from ddpjob_core.api.launchers import Launcher


@pytest.mark.parametrize("launcher", Launcher)
def test_every_launcher_has_a_row(launcher: Launcher) -> None:
    assert launcher.traits.module
