"""Files that another process reads while they are written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, content: object) -> None:
    """Write JSON so that a reader finds all of it or no file."""
    new = path.with_name(f"{path.name}.new")
    new.touch(0o600)
    new.write_text(json.dumps(content))
    new.replace(path)
