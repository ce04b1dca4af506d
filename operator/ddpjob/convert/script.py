"""A job script read line by line: its variables, its launch lines, and what takes the place of everything else."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ddpjob.convert.commands import OTHER_LAUNCHERS, QUIET, SHELLS, TRANSPARENT, WRAPPERS, place_of
from ddpjob.convert.launch import LAUNCH, MPIRUN, PYTHON, TORCHRUN, Launch, RefusedError
from ddpjob.convert.mpirun_line import MpiRequest, ReadFile, read_mpirun
from ddpjob.convert.notes import Note
from ddpjob.convert.python_line import PythonLine, is_python, read_python
from ddpjob.convert.shell import Command, Kind, Word, commands
from ddpjob.convert.srun import Tasks, read_srun
from ddpjob.convert.torchrun_line import torchrun_launch
from ddpjob.convert.variables import Text, Variables
from ddpjob_core.api.constants import is_reserved_env

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_OPENING: Final = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_CLOSING: Final = frozenset({"fi", "done", "esac", "}"})
_BETWEEN: Final = frozenset({"then", "do", "else", "elif", "!"})
_CONDITIONS: Final = frozenset({"if", "elif", "while", "until"})
_LOOPS: Final = frozenset({"for", "select"})
_EXPORTING: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
_MPIRUNS: Final = frozenset({"mpirun", "mpiexec", "orterun", "mpiexec.hydra", "prterun"})
_RUN_MODULES: Final = frozenset({"torch.distributed.run", "torch.distributed.launcher"})
# Places on the disks of one machine: those of the image take their place.
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
_DEEPEST: Final = 4
_HOSTS: Final = "not needed: the pods of a job find each other by their names"
_LOG_FILE: Final = "not carried over: ddpjob logs, or kubectl logs, shows what every pod writes"


@dataclass(slots=True)
class Reading:
    """What a script holds.

    Attributes:
        launches: its launch lines in their order.
        refused: launch lines that no DDPJob can stand for.
        notes: what becomes of everything else.
    """

    launches: list[Launch] = field(default_factory=list)
    refused: list[RefusedError] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def read_script(text: str, *, known: Mapping[str, str], read_file: ReadFile, tasks: Tasks, line: int = 1) -> Reading:
    """Read a script; nothing of it is run.

    Args:
        text: of the script, directives and all.
        known: variables that the scheduler sets.
        read_file: reads a hostfile that is named.
        tasks: what the scheduler was asked for, which srun takes over.
        line: number of its first line.

    Raises:
        UnreadableError: it is no shell script.
    """
    reader = _Reader(Variables(known), read_file, tasks)
    reader.read(text, line)
    return reader.reading


@dataclass(frozen=True, slots=True)
class _Call:
    """A command whose words are known: `tasks` are srun's, where that starts it."""

    words: tuple[Text, ...]
    command: Command
    tasks: Tasks | None = None

    @property
    def name(self) -> str:
        """The command's name without its folder."""
        return _base(self.words[0].text)

    def after(self, count: int) -> "_Call":
        """The command that a wrapper of so many words starts."""
        return replace(self, words=self.words[count:])

    def written(self, count: int) -> str:
        """The first words as they are written."""
        return " ".join(word.raw for word in self.words[:count])

    def wrapped_at(self) -> int | None:
        """Where the command stands that this one starts."""
        places = (index for index, word in enumerate(self.words) if index and _starts_something(word.text))
        return next(places, None)

    def launcher_at(self) -> int | None:
        """Where the first launcher or shell stands behind this command."""
        places = (index for index, word in enumerate(self.words) if index and _launches(word.text))
        return next(places, None)


class _Reader:
    def __init__(self, variables: Variables, read_file: ReadFile, tasks: Tasks) -> None:
        self.reading = Reading()
        self._variables = variables
        self._read_file = read_file
        self._tasks = tasks
        self._depth = 0
        self._nested = 0
        self._kinds: dict[str, Callable[[_Call], bool]] = {
            **dict.fromkeys(TRANSPARENT, self._transparent),
            **dict.fromkeys(OTHER_LAUNCHERS, self._other_launcher),
            **dict.fromkeys(_MPIRUNS, self._mpirun),
            **dict.fromkeys((*SHELLS, "ssh"), self._inner_shell),
            "env": self._env,
            "srun": self._srun,
            "torchrun": self._torchrun,
        }

    def read(self, text: str, line: int) -> None:
        for command in commands(text, line):
            self._command(command)

    def _note(self, line: int, text: str, message: str) -> None:
        self.reading.notes.append(Note(line, text, message))

    def _command(self, command: Command, tasks: Tasks | None = None) -> None:
        words = self._without_keywords(command.words)
        ahead: list[tuple[Word, re.Match[str]]] = []
        while words and (match := _assigned(words[0])):
            ahead.append((words[0], match))
            words = words[1:]
        if not words:
            for word, match in ahead:
                self._assign(word, match)
            return
        texts = [text for word in words for text in self._variables.expand(word)]
        if texts and texts[0].text in _EXPORTING | {"unset"}:
            self._export(texts[0].text, words[1:])
        elif texts:
            self._run(texts, command, {match[1]: self._assigned_text(word, match) for word, match in ahead}, tasks)

    def _without_keywords(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """The command behind the keywords of a block, which count how deep it stands."""
        while words:
            keyword = words[0].raw
            if keyword in _CLOSING:
                self._depth = max(0, self._depth - 1)
            elif keyword in _OPENING:
                self._depth += 1
            elif keyword not in _BETWEEN:
                return words
            if keyword in _LOOPS and len(words) > 1:
                self._variables.hide(words[1].raw)
            if keyword in _LOOPS or keyword == "case":
                return ()
            if keyword in _CONDITIONS and len(words) > 1 and not _launches(words[1].raw):
                return ()
            words = words[1:]
        return words

    def _assigned_text(self, word: Word, match: re.Match[str]) -> Text:
        """What an assignment before a command gives to it."""
        texts = self._variables.expand(word)
        value = " ".join(text.text for text in texts).partition("=")[2]
        unknown = tuple(name for text in texts for name in text.unknown)
        return Text(value, word.line, word.raw, unknown or ((match[1],) if word.items is not None else ()))

    def _assign(self, word: Word, match: re.Match[str], *, exported: bool = False) -> None:
        name, certain = match[1], self._depth == 0
        known = self._variables.assign(name, word, certain=certain, append=bool(match[2]))
        # What belongs to the launcher is told where it is exported, or where a launch line takes it.
        if not known and not (exported and is_reserved_env(name)):
            self._note(word.line, word.raw, _HOSTS)

    def _export(self, command: str, words: Sequence[Word]) -> None:
        flags = "".join(word.raw for word in words if word.raw.startswith("-"))
        for word in words:
            if match := _assigned(word):
                self._assign(word, match, exported=command == "export")
            elif not _ASSIGNMENT.fullmatch(f"{word.raw}="):
                continue
            name = match[1] if match else word.raw
            if command == "unset":
                self._variables.hide(name)
                self._variables.exported.pop(name, None)
            elif command == "export" or "x" in flags:
                self._variables.exported[name] = word.line
                if is_reserved_env(name):
                    self._note(word.line, f"export {word.raw}", f"not needed: {name} is set by the launcher")

    def _run(self, words: Sequence[Text], command: Command, assigned: Mapping[str, Text], tasks: Tasks | None) -> None:
        found = len(self.reading.launches)
        try:
            call = _Call(tuple(words), command, tasks)
            if not self._launch(call):
                self._around(words, command)
        except RefusedError as refused:
            self.reading.refused.append(refused)
        new = self.reading.launches[found:]
        if new:
            self._redirected(command)
        for index, launch in enumerate(new, found):
            self.reading.launches[index] = self._with_environment(launch, assigned)
            if self._depth and not self._nested:
                self._note(launch.line, launch.raw, "this stands inside if, for or { }: taken as if it ran once")

    def _redirected(self, command: Command) -> None:
        for redirection in command.redirections:
            if not re.match(r"\d*<|.*(?:/dev/|&\d)", redirection):
                self._note(command.line, redirection, _LOG_FILE)

    def _around(self, words: Sequence[Text], command: Command) -> None:
        second = words[1].text if len(words) > 1 else ""
        if message := place_of(words[0].text, second):
            self._note(command.line, command.raw, message)

    def _launch(self, call: _Call) -> bool:
        """Whether the command is a launch line, which is kept then."""
        read = self._kinds.get(call.name) or (self._python if is_python(call.name) else self._wrapped)
        return read(call)

    def _transparent(self, call: _Call) -> bool:
        return len(call.words) > 1 and self._launch(call.after(1))

    def _other_launcher(self, call: _Call) -> bool:
        raise RefusedError(
            call.words[0].line,
            "spec.launcher",
            f"{call.name} is a launcher of its own, which a DDPJob does not start",
            "give the torchrun line that it stands for",
        )

    def _torchrun(self, call: _Call) -> bool:
        self._keep(torchrun_launch(call.words, call.command.raw), call.tasks)
        return True

    def _keep(self, launch: Launch, tasks: Tasks | None) -> None:
        if tasks is not None and tasks.per_node not in (None, 1):
            message = f"srun would start {tasks.per_node} launchers on a node: the job starts one"
            launch = replace(launch, notes=(*launch.notes, Note(launch.line, launch.raw, message)))
        self.reading.launches.append(launch)

    def _python(self, call: _Call) -> bool:
        line = read_python(call.words)
        if not line.trains:
            return False
        launcher = _launcher_of(line)
        if launcher:
            launch = torchrun_launch(line.words, call.command.raw, launcher=launcher)
            self._keep(replace(launch, env=dict(line.env), notes=(*line.notes, *launch.notes)), call.tasks)
        else:
            self.reading.launches.append(_python_launch(line, call.words[0].line, call.command.raw, call.tasks))
        return True

    def _mpirun(self, call: _Call) -> bool:
        words = call.words
        request = read_mpirun(words, self._read_file, self._exported())
        first = len(words) - len(request.program)
        inner = call.after(first)
        line = read_python(inner.words) if is_python(inner.name) else None
        if inner.name == "torchrun" or (line is not None and _launcher_of(line)):
            self._note(words[0].line, call.written(first), "not needed: the job starts torchrun on every node")
            return self._launch(inner)
        if line is not None and line.trains:
            self.reading.launches.append(_mpirun_launch(request, line, words[0].line, call.command.raw))
            return True
        if inner.name in QUIET:
            return False
        raise RefusedError(
            inner.words[0].line,
            "spec.trainer.script",
            f"mpirun starts {inner.words[0].raw}, which is no Python program",
            "a DDPJob's launcher starts Python programs: python3 train.py",
        )

    def _srun(self, call: _Call) -> bool:
        at = call.wrapped_at()
        if at is None:
            return False
        tasks, notes = read_srun(call.words[1:at], self._tasks)
        kept = self._launch(replace(call.after(at), tasks=tasks))
        if kept:
            self.reading.notes += notes
        return kept

    def _env(self, call: _Call) -> bool:
        count = 1
        assigned: dict[str, Text] = {}
        while count < len(call.words) and (match := _ASSIGNMENT.match(call.words[count].text)):
            word = call.words[count]
            assigned[match[1]] = replace(word, text=word.text[match.end() :])
            count += 1
        if count == len(call.words) or call.words[count].text.startswith("-"):
            return False
        before = len(self.reading.launches)
        kept = self._launch(call.after(count))
        for index in range(before, len(self.reading.launches)):
            self.reading.launches[index] = self._with_assigned(self.reading.launches[index], assigned)
        return kept

    def _inner_shell(self, call: _Call) -> bool:
        """`bash -c "torchrun ..."` and `ssh node "torchrun ..."`: the inner shell's script is read as well."""
        words, remote = call.words, call.name == "ssh"
        if remote:
            at = next((index for index, word in enumerate(words) if index and _any_launch(word.text)), None)
        else:
            at = next((index + 1 for index, word in enumerate(words) if re.fullmatch(r"-\w*c", word.text)), None)
        if at is None or at >= len(words) or self._nested >= _DEEPEST:
            return False
        before = len(self.reading.launches)
        self._nested += 1
        for each in commands(" ".join(word.text for word in words[at:]) if remote else words[at].text, words[at].line):
            self._command(each, call.tasks)
        self._nested -= 1
        kept = len(self.reading.launches) > before
        for name in dict.fromkeys(name for word in words for name in word.assumed if kept):
            self._note(words[at].line, f"${name}", "not set in the script: its default is taken")
        if remote and kept:
            self._note(words[0].line, call.written(at), "not needed: the job starts a pod for every node by itself")
        return kept

    def _wrapped(self, call: _Call) -> bool:
        place, at = WRAPPERS.get(call.name), call.launcher_at()
        if place is None or at is None or not self._launch(call.after(at)):
            return False
        self._note(call.words[0].line, call.written(at), f"not carried over: its place is taken by {place}")
        return True

    def _exported(self) -> dict[str, str]:
        held = {name: self._variables.text(name) for name in self._variables.exported}
        return {name: text.text for name, text in held.items() if text is not None and not text.unknown}

    def _with_environment(self, launch: Launch, assigned: Mapping[str, Text]) -> Launch:
        """The launch with the variables that its programs see."""
        if self._nested:
            return self._with_assigned(launch, assigned)
        values = {
            name: replace(text, line=line, raw=f"export {name}")
            if (text := self._variables.text(name)) is not None
            else Text("", line, f"export {name}", (name,))
            for name, line in self._variables.exported.items()
            if not is_reserved_env(name)
        }
        return self._with_assigned(launch, {**values, **assigned})

    def _with_assigned(self, launch: Launch, assigned: Mapping[str, Text]) -> Launch:
        env, notes = dict(launch.env), list(launch.notes)
        for name, text in assigned.items():
            if is_reserved_env(name):
                notes.append(Note(text.line, text.raw, f"not needed: {name} is set by the launcher"))
            elif name in _OF_THE_MACHINE:
                notes.append(Note(text.line, text.raw, f"not carried over: the image's {name} takes its place"))
            elif text.unknown:
                message = f"{name} is not carried over: {', '.join(text.unknown)} is not known; write spec.trainer.env"
                notes.append(Note(text.line, text.raw, message))
            else:
                env.setdefault(name, text.text)
        return replace(launch, env=env, notes=tuple(notes))


def _assigned(word: Word) -> re.Match[str] | None:
    """NAME= at the beginning of a word, which no quote hides."""
    if not word.pieces or word.pieces[0].kind is not Kind.LITERAL or word.pieces[0].quoted:
        return None
    return _ASSIGNMENT.match(word.pieces[0].text)


def _launcher_of(line: PythonLine) -> str:
    """The launcher that an interpreter is told to run, as -m torch.distributed.run; empty where it is none."""
    if not (line.is_module and line.trains):
        return ""
    module = line.words[0].text
    return LAUNCH if module == LAUNCH else TORCHRUN if module in _RUN_MODULES else ""


def _python_launch(line: PythonLine, first: int, raw: str, tasks: Tasks | None) -> Launch:
    """Plain python: one process, or, under srun, one for each task, as torchrun starts them."""
    program, *args = line.words
    kind = "module" if line.is_module else "script"
    notes = list(line.notes)
    if tasks is not None:
        notes.append(
            Note(
                first,
                raw,
                "srun starts a process for each task: torchrun starts them, "
                "and gives RANK, WORLD_SIZE and LOCAL_RANK for SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID",
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


def _mpirun_launch(request: MpiRequest, inner: PythonLine, first: int, raw: str) -> Launch:
    program, *args = inner.words
    kind = "module" if inner.is_module else "script"
    return Launch(
        line=first,
        raw=raw,
        launcher=MPIRUN,
        program=program,
        is_module=inner.is_module,
        args=tuple(args),
        nodes=request.nodes,
        processes=request.processes,
        total_processes=request.total,
        port=request.port,
        env={**request.env, **dict(inner.env)},
        lines={**request.lines, kind: program.line},
        notes=(*request.notes, *inner.notes),
    )


def _base(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _launches(text: str) -> bool:
    """Whether a word is a launcher itself."""
    return _base(text) in {"torchrun", "srun", *_MPIRUNS, *SHELLS} or is_python(text)


def _starts_something(text: str) -> bool:
    """Whether a word behind a wrapper is the command that it wraps."""
    return _launches(text) or _base(text) in {*WRAPPERS, *TRANSPARENT, *OTHER_LAUNCHERS, "env"}


def _any_launch(text: str) -> bool:
    return any(_launches(word) for word in text.split())
