"""What CHANGELOG.md says of a version."""

import re

from hack.console import StepError


def check(text: str, version: str) -> str:
    """Check that the changelog has a section for a version.

    Args:
        text: of CHANGELOG.md.
        version: such as 1.2.3.

    Returns:
        What the heading says after the version, such as a date; "" if nothing.

    Raises:
        StepError: there is no section for it, or it is empty.
    """
    found = re.search(
        rf"^## \[{re.escape(version)}\](?: - ([^\n]*))?$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if found is None or not found[2].strip():
        raise StepError(f"CHANGELOG.md has no section `## [{version}]` with what has changed")
    return found[1] or ""
