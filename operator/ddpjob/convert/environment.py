"""The variables that a launched program sees."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ddpjob.convert.launch import Launch
from ddpjob.convert.notes import Note
from ddpjob.convert.variables import Text, Variables
from ddpjob_core.api.constants import is_reserved_env

# Paths on the disks of one machine, for which the image has its own.
_OF_THE_MACHINE: Final = frozenset(
    {
        "PATH",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CPATH",
        "LD_PRELOAD",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "HOME",
        "CUDA_HOME",
    }
)


def exported(variables: Variables) -> dict[str, str]:
    """The exported variables whose values are known."""
    held = {name: variables.text(name) for name in variables.exported}
    return {name: text.text for name, text in held.items() if text is not None and not text.unknown}


def with_exported(launch: Launch, variables: Variables, assigned: Mapping[str, Text]) -> Launch:
    """The launch with the variables that its programs see.

    Args:
        launch: without them.
        variables: of the script; those that are exported count.
        assigned: those that are set on the launch line itself, which win.
    """
    values = {
        name: replace(text, line=line, raw=f"export {name}")
        if (text := variables.text(name)) is not None
        else Text("", line, f"export {name}", (name,))
        for name, line in variables.exported.items()
        if not is_reserved_env(name)
    }
    return with_assigned(launch, {**values, **assigned})


def with_assigned(launch: Launch, assigned: Mapping[str, Text]) -> Launch:
    """The launch with the variables that are set on its line."""
    env, notes = dict(launch.env), list(launch.notes)
    for name, text in assigned.items():
        if is_reserved_env(name):
            notes.append(Note(text.line, text.raw, f"not needed: the launcher sets {name}"))
        elif name in _OF_THE_MACHINE:
            notes.append(Note(text.line, text.raw, f"not carried over: the image's {name} is used"))
        elif text.unknown:
            message = f"{name} is not carried over: {', '.join(text.unknown)} is not known; set it in spec.trainer.env"
            notes.append(Note(text.line, text.raw, message))
        else:
            env.setdefault(name, text.text)
    return replace(launch, env=env, notes=tuple(notes))
