"""Where every process of the launcher starts."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from .commands import RUN


def main() -> Any:  # noqa: ANN401 -- an exit code, if any
    """Launch the program, which the arguments are for, or run one of our modules; return the exit code."""
    if sys.argv[1:2] == [RUN]:
        return import_module(f".{sys.argv[2]}", __package__).run(sys.argv[3:])
    # A worker is kept from importing what only the guard needs: programs find those modules loaded.
    return import_module(".guard", __package__).launch()
