"""A home and a name for a user that the image has none for, as where an image made for root runs as another user.

Programs count on both: caches are put below HOME, and torch's own compiler asks getpass for the user's name.
"""

# ruff: noqa: PTH103, PTH118 -- plain paths go into the environment

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_NAME = "ddpjob"


def give_home(environment: MutableMapping[str, str], folder: str) -> None:
    """Set HOME to a new folder in `folder` unless it is writable, and USER and LOGNAME if the user has no name."""
    home = environment.get("HOME", "")
    # Of no user whom the image knows, container runtimes say that its home is the root folder.
    if not home or not os.access(home, os.W_OK | os.X_OK):
        environment["HOME"] = os.path.join(folder, "home")
        os.makedirs(environment["HOME"], mode=0o700, exist_ok=True)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        for name in ("USER", "LOGNAME"):
            environment.setdefault(name, _NAME)
