"""No file of the product is longer than a reader takes in at a sitting."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hack.cache import ROOT

PRODUCT: Final = ("operator", "trainer")
MOST_LINES: Final = 400


def too_long(root: Path = ROOT, folders: Iterable[str] = PRODUCT) -> list[str]:
    """What to say of each Python file that has too many lines."""
    found = []
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        name = str(path.relative_to(root))
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES:
            found.append(f"{name} has {lines} lines; split it, at most {MOST_LINES} are allowed")
    return found
