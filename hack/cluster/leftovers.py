"""Removing folders that users of containers wrote to: without root here their files are another user's."""

import shutil
from pathlib import Path

from hack.cluster.engine import NODE_IMAGE, Engine
from hack.console import StepError


def remove_folder(engine: Engine, folder: Path) -> None:
    """Remove a folder with all that is in it.

    Raises:
        StepError: something of it cannot be removed; the message says how to.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        # In a container everybody who may use the engine is root.
        volume = f"--volume={folder.parent}:/parent"
        engine.output("run", "--rm", "--entrypoint=rm", volume, NODE_IMAGE, "-rf", f"/parent/{folder.name}")
    if folder.exists():
        raise StepError(f"{folder} holds files of other users; remove it: sudo rm -rf {folder}")
