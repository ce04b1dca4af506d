"""An earlier version of everything, as git has it: what people run who upgrade."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
REVISION: Final = "b5aaa71037028a2dbf2cb86506aeabb7f91a28cf"
"""The first one that could be installed with the chart. Since then definition, permissions and pods have changed."""


def unpack_earlier(folder: Path) -> Path:
    """Operator, manifests and what its image is built from, in a folder; the test is skipped where git has none.

    A source distribution has no history, and neither has a shallow clone.
    """
    missing = _missing()
    if missing:
        pytest.skip(f"an earlier version is needed, and {missing}")
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", REVISION, "operator", "manifests", "images/operator", "pyproject.toml"],
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True, timeout=60)
    return folder


@cache
def _missing() -> str:
    if not shutil.which("git"):
        return "there is no git"
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{REVISION}^{{commit}}"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return "" if done.returncode == 0 else f"the history of {ROOT} does not reach back to it"
