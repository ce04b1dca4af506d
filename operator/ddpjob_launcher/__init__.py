"""What runs first in a training pod, as text: the operator delivers it and never imports it."""

from importlib.resources import files
from typing import Final

FILE: Final = "launcher.py"
_FILES: Final = (FILE, "mpirun_launcher.py", "remote_shell.py")


def sources() -> dict[str, str]:
    """The launcher's files by name, to be run as `python3 launcher.py [arguments of the program]`."""
    return {name: files(__name__).joinpath(name).read_text(encoding="utf-8") for name in _FILES}
