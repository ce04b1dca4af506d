"""The table of launchers is complete, and names what exists."""

from importlib import import_module

import pytest

from ddpjob_core.api.launchers import Launcher
from ddpjob_launcher.agent import Agent


@pytest.mark.parametrize("launcher", Launcher)
def test_every_launcher_has_a_row_that_names_a_module_with_an_agent(launcher: Launcher) -> None:
    assert issubclass(import_module(f"ddpjob_launcher.{launcher.traits.module}").AGENT, Agent)
