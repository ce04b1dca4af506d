"""How a process of the launcher starts another one."""

# ruff: noqa: PTH100, PTH120 -- each worker imports this, and pathlib with it

from __future__ import annotations

import os
import sys

RUN = "--ddpjob-run"
# The archive that holds this module.
FILE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def command(module: str, *arguments: str) -> list[str]:
    """The command that calls `run` of one of our modules with these arguments."""
    return [sys.executable, "-u", FILE, RUN, module, *arguments]
