"""How many tests run at a time."""

import os
from typing import Final

# More hold each other up on the one control plane, or the one container, that they share.
_MOST: Final = 4


def side_by_side(*, more: int = 0, most: int = _MOST) -> tuple[str, str]:
    """Options of pytest: a test at a time for each core, and some more where tests wait a lot.

    Who has none left takes one of another's, since the lengths of tests differ a lot.
    """
    return f"--numprocesses={min((os.cpu_count() or 1) + more, most)}", "--dist=worksteal"
