"""`make lint`: every check, even after one of them has failed, so that one run shows all there is to do."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.cache import ROOT, cache_folder
from hack.console import say
from hack.lint import length, rooms, vocabulary

_BIN: Final = Path(sys.executable).parent


def _tool(program: str, *arguments: str) -> Callable[[], str]:
    def run() -> str:
        # What mypy knows of the packages is the same for each clone, and takes it half a minute to find out.
        environment = {"MYPY_CACHE_DIR": str(cache_folder() / "mypy"), **os.environ}
        done = subprocess.run(
            [_BIN / program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        output = (done.stdout + done.stderr).strip()
        return (output or f"exit code {done.returncode}") if done.returncode != 0 else ""

    return run


CHECKS: Final[dict[str, Callable[[], str]]] = {
    "ruff check": _tool("ruff", "check", "--quiet", "."),
    "ruff format": _tool("ruff", "format", "--check", "--quiet", "."),
    "mypy": _tool("mypy", "operator", "trainer", "hack", "images/kind-node/network_policy"),
    "import-linter": _tool("lint-imports"),
    "rooms": lambda: "\n".join(rooms.complaints(rooms.current())),
    "file length": lambda: "\n".join(length.too_long()),
    "vocabulary": lambda: "\n".join(vocabulary.complaints()),
}


def failed_checks() -> list[str]:
    """Names of the checks that found something; what they found has been printed."""
    failed = []
    for name, check in CHECKS.items():
        found = check()
        if found:
            failed.append(name)
            say(f"lint: {name}\n{found}")
    return failed


def main() -> None:
    """Exit with an error where a check found something."""
    failed = failed_checks()
    if failed:
        sys.exit(f"lint: {', '.join(failed)} failed; `.venv/bin/ruff format .` fixes the formatting")
    say(f"lint: all checks passed: {', '.join(CHECKS)}")


if __name__ == "__main__":
    main()
