"""`make lint`: every check, also after one of them failed, so that one run shows all there is to do."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from hack.cache import ROOT
from hack.console import say

_BIN: Final = Path(sys.executable).parent
CHECKS: Final = (
    ("ruff check", ("ruff", "check", "--quiet", ".")),
    ("ruff format", ("ruff", "format", "--check", "--quiet", ".")),
    ("mypy", ("mypy", "operator", "trainer", "hack")),
    ("import-linter", ("lint-imports",)),
)


def failed_checks() -> list[str]:
    """Names of the checks that found something; what they found has been printed."""
    failed = []
    for name, (program, *arguments) in CHECKS:
        done = subprocess.run([_BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failed.append(name)
            say(f"lint: {name}\n{(done.stdout + done.stderr).strip()}")
    return failed


def main() -> None:
    """Exit with an error where a check found something."""
    failed = failed_checks()
    if failed:
        sys.exit(f"lint: {', '.join(failed)} found something; `.venv/bin/ruff format .` mends layout")
    say(f"lint: {', '.join(name for name, _ in CHECKS)} are content")


if __name__ == "__main__":
    main()
