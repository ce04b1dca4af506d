"""A home and a name for a user that the image has none for, as where an image made for root runs as another user.

Programs count on both: caches are put below HOME, and torch's own compiler asks getpass for the user's name.
"""

# ruff: noqa: PTH103, PTH112, PTH117, PTH118 -- plain paths go into the environment

from __future__ import annotations

import contextlib
import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_NAME = "ddpjob"
# In the order of getpass.
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def give_home(environment: MutableMapping[str, str], folder: str) -> None:
    """Set HOME to a new folder in `folder` unless it is writable, and USER and LOGNAME if the user has no name.

    A home that does not exist is created where it is named, if possible.
    """
    home = environment.get("HOME", "")
    # Of no user whom the image knows, container runtimes say that its home is the root folder.
    if not _is_writable(home):
        environment["HOME"] = os.path.join(folder, "home")
        os.makedirs(environment["HOME"], mode=0o700, exist_ok=True)
        packages = os.path.join(home, ".local")
        if os.path.isabs(home) and os.path.isdir(packages):
            # Where Python finds what `pip install --user` put into the image.
            environment.setdefault("PYTHONUSERBASE", packages)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        given = next((environment[name] for name in _NAMES if environment.get(name)), _NAME)
        for name in ("USER", "LOGNAME"):
            environment[name] = environment.get(name) or given


def _is_writable(home: str) -> bool:
    if os.path.isabs(home):
        # A folder of a volume, say, that the program would have created.
        with contextlib.suppress(OSError):
            os.makedirs(home, mode=0o700, exist_ok=True)
    return bool(home) and os.access(home, os.W_OK | os.X_OK)
