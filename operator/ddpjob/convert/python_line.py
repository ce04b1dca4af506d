"""Lines that start Python: the interpreter's own options before a script or a module."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ddpjob.convert.launch import LAUNCH, PYTHON, TORCHRUN, Launch
from ddpjob.convert.notes import Note
from ddpjob.convert.srun import Tasks
from ddpjob.convert.variables import Text

_PYTHON: Final = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
_UNBUFFERED: Final = "PYTHONUNBUFFERED"
_RUN_MODULES: Final = frozenset({"torch.distributed.run", "torch.distributed.launcher"})
# Modules that prepare a machine and train nothing.
_TOOLS: Final = frozenset(
    {"pip", "venv", "virtualenv", "ensurepip", "site", "compileall", "json.tool", "http.server", "timeit"}
)


@dataclass(frozen=True, slots=True)
class PythonLine:
    """What an interpreter runs.

    Attributes:
        words: the script or module, then its arguments; empty if it is neither.
        is_module: which of the two.
        env: the variables that are equivalent to the interpreter's options.
    """

    words: tuple[Text, ...]
    is_module: bool = False
    env: tuple[tuple[str, str], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether it may be a training: not code on the command line, and not a tool that prepares something."""
        return bool(self.words) and not (self.is_module and self.words[0].text in _TOOLS)


def is_python(text: str) -> bool:
    """Whether a command is a Python interpreter."""
    return _PYTHON.fullmatch(text) is not None


def read_python(words: Sequence[Text]) -> PythonLine:
    """Split a line of an interpreter into options and program.

    Args:
        words: the interpreter, its options, then a script, or -m and a module.
    """
    env: list[tuple[str, str]] = []
    notes: list[Note] = []
    at = 1
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-"):
            return PythonLine(tuple(words[at:]), env=tuple(env), notes=tuple(notes))
        if word.text == "-m":
            return PythonLine(tuple(words[at + 1 :]), is_module=True, env=tuple(env), notes=tuple(notes))
        if word.text.startswith("-m"):
            module = Text(word.text.removeprefix("-m"), word.line, word.raw, word.unknown, word.assumed)
            return PythonLine((module, *words[at + 1 :]), is_module=True, env=tuple(env), notes=tuple(notes))
        if word.text.startswith("-c") or word.text == "-":
            return PythonLine(())
        if word.text == "-u":
            env.append((_UNBUFFERED, "1"))
        else:
            notes.append(
                Note(word.line, word.raw, "not carried over: set the matching PYTHON* variable in spec.trainer.env")
            )
            at += word.text in _WITH_VALUE
        at += 1
    return PythonLine(())


def launcher_of(line: PythonLine) -> str:
    """The launcher that an interpreter runs, such as -m torch.distributed.run; empty if it runs none."""
    if not (line.is_module and line.trains):
        return ""
    module = line.words[0].text
    return LAUNCH if module == LAUNCH else TORCHRUN if module in _RUN_MODULES else ""


def python_launch(line: PythonLine, first: int, raw: str, tasks: Tasks | None) -> Launch:
    """Plain python: one process, or, under srun, one per task, which torchrun starts."""
    program, *args = line.words
    kind = "module" if line.is_module else "script"
    notes = list(line.notes)
    if tasks is not None:
        notes.append(
            Note(
                first,
                raw,
                "srun starts one process per task; here torchrun starts them, "
                "with RANK, WORLD_SIZE and LOCAL_RANK instead of SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID",
            )
        )
    return Launch(
        line=first,
        raw=raw,
        launcher=PYTHON if tasks is None else TORCHRUN,
        program=program,
        is_module=line.is_module,
        args=tuple(args),
        nodes=1 if tasks is None else tasks.nodes,
        processes=1 if tasks is None else tasks.per_node,
        total_processes=None if tasks is None else tasks.total,
        env=dict(line.env),
        lines={kind: program.line},
        notes=tuple(notes),
    )
