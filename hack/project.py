"""What pyproject.toml says of the project: the one place where its version is written."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

from hack.cache import ROOT

_VERSION: Final = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")


@cache
def project_version(root: Path = ROOT) -> str:
    """The version of all that is released together: packages, chart, definition, images, plugin.

    Raises:
        ValueError: it is not three numbers. Helm and krew accept nothing else as a version of a release, and pip would
            write other versions in another way than they do.
    """
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if not _VERSION.fullmatch(version):
        raise ValueError(f"version {version!r} in pyproject.toml must be three numbers, such as 1.2.3")
    return version
