"""The one file that runs first in a training pod, as text: the operator delivers it and never imports it."""

from importlib.resources import files


def source() -> str:
    """The launcher's source, to be run as `python3 launcher.py [arguments of the program]`."""
    return files(__name__).joinpath("launcher.py").read_text(encoding="utf-8")
