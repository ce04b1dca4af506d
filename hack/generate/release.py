"""The module with the version, for programs that run without their distribution, such as the operator in its image."""

import re
from typing import Final

from hack.cache import ROOT
from hack.project import project_version

MODULE: Final = "operator/ddpjob_core/api/release.py"


def release_module() -> str:
    """The module with the version of pyproject.toml.

    Raises:
        ValueError: it does not have exactly one line for it.
    """
    text, found = re.subn(
        r'^RELEASE: Final = ".*"$',
        f'RELEASE: Final = "{project_version()}"',
        (ROOT / MODULE).read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    if found != 1:
        raise ValueError(f"{MODULE} must have one line that begins with `RELEASE: Final =`")
    return text
