"""Recognises the commands that start a training, and reads the launches that they ask for."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ddpjob.convert.call import MPIRUNS, Call, has_launcher
from ddpjob.convert.commands import OTHER_LAUNCHERS, QUIET, SHELLS, TRANSPARENT, WRAPPERS
from ddpjob.convert.environment import exported, with_assigned
from ddpjob.convert.launch import Launch, Reading, RefusedError
from ddpjob.convert.mpirun_line import ReadFile, mpirun_launch, read_mpirun
from ddpjob.convert.notes import Note
from ddpjob.convert.python_line import is_python, launcher_of, python_launch, read_python
from ddpjob.convert.shell import Command, commands
from ddpjob.convert.srun import Tasks, read_srun
from ddpjob.convert.torchrun_line import torchrun_launch
from ddpjob.convert.variables import Text, Variables

_DEEPEST: Final = 4
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)\+?=")


class Launchers:
    """Reads the commands that start a training into a `Reading`."""

    def __init__(
        self,
        reading: Reading,
        variables: Variables,
        read_file: ReadFile,
        tasks: Tasks,
        read_inner: Callable[[Command, Tasks | None], None],
    ) -> None:
        """Args:
        reading: where launches and notes are kept.
        variables: of the script, as far as it has been read.
        read_file: reads a hostfile.
        tasks: what the scheduler was asked for, which srun inherits.
        read_inner: reads a command of an inner shell's script.
        """
        self._reading = reading
        self._variables = variables
        self._read_file = read_file
        self._tasks = tasks
        self._read_inner = read_inner
        self.nested = 0
        """How many inner shells the command that is being read is in."""
        self._kinds: dict[str, Callable[[Call], bool]] = {
            **dict.fromkeys(TRANSPARENT, self._transparent),
            **dict.fromkeys(OTHER_LAUNCHERS, self._other_launcher),
            **dict.fromkeys(MPIRUNS, self._mpirun),
            **dict.fromkeys((*SHELLS, "ssh"), self._inner_shell),
            "env": self._env,
            "srun": self._srun,
            "torchrun": self._torchrun,
        }

    def launch(self, call: Call) -> bool:
        """Read a command; whether it is a launch line, which is then kept."""
        read = self._kinds.get(call.name) or (self._python if is_python(call.name) else self._wrapped)
        return read(call)

    def _transparent(self, call: Call) -> bool:
        return len(call.words) > 1 and self.launch(call.after(1))

    def _other_launcher(self, call: Call) -> bool:
        raise RefusedError(
            call.words[0].line,
            "spec.launcher",
            f"a DDPJob does not start the launcher {call.name}",
            "pass the equivalent torchrun line",
        )

    def _torchrun(self, call: Call) -> bool:
        self._keep(torchrun_launch(call.words, call.command.raw), call.tasks)
        return True

    def _keep(self, launch: Launch, tasks: Tasks | None) -> None:
        if tasks is not None and tasks.per_node not in (None, 1):
            message = f"srun would start {tasks.per_node} launchers per node: the job starts one"
            launch = replace(launch, notes=(*launch.notes, Note(launch.line, launch.raw, message)))
        self._reading.launches.append(launch)

    def _python(self, call: Call) -> bool:
        line = read_python(call.words)
        if not line.trains:
            return False
        launcher = launcher_of(line)
        if launcher:
            launch = torchrun_launch(line.words, call.command.raw, launcher=launcher)
            self._keep(replace(launch, env=dict(line.env), notes=(*line.notes, *launch.notes)), call.tasks)
        else:
            self._reading.launches.append(python_launch(line, call.words[0].line, call.command.raw, call.tasks))
        return True

    def _mpirun(self, call: Call) -> bool:
        words = call.words
        request = read_mpirun(words, self._read_file, exported(self._variables))
        first = len(words) - len(request.program)
        inner = call.after(first)
        line = read_python(inner.words) if is_python(inner.name) else None
        if inner.name == "torchrun" or (line is not None and launcher_of(line)):
            self._note(words[0].line, call.written(first), "not needed: the job starts torchrun on every node")
            return self.launch(inner)
        if line is not None and line.trains:
            self._reading.launches.append(mpirun_launch(request, line, words[0].line, call.command.raw))
            return True
        if inner.name in QUIET:
            return False
        raise RefusedError(
            inner.words[0].line,
            "spec.trainer.script",
            f"mpirun starts {inner.words[0].raw}, which is not a Python program",
            "a DDPJob starts Python programs, such as: python3 train.py",
        )

    def _srun(self, call: Call) -> bool:
        at = call.wrapped_at()
        if at is None:
            return False
        tasks, notes = read_srun(call.words[1:at], self._tasks)
        kept = self.launch(replace(call.after(at), tasks=tasks))
        if kept:
            self._reading.notes += notes
        return kept

    def _env(self, call: Call) -> bool:
        count = 1
        assigned: dict[str, Text] = {}
        while count < len(call.words) and (match := _ASSIGNMENT.match(call.words[count].text)):
            word = call.words[count]
            assigned[match[1]] = replace(word, text=word.text[match.end() :])
            count += 1
        if count == len(call.words) or call.words[count].text.startswith("-"):
            return False
        before = len(self._reading.launches)
        kept = self.launch(call.after(count))
        for index in range(before, len(self._reading.launches)):
            self._reading.launches[index] = with_assigned(self._reading.launches[index], assigned)
        return kept

    def _inner_shell(self, call: Call) -> bool:
        """`bash -c "torchrun ..."` and `ssh node "torchrun ..."`: the inner shell's script is read too."""
        words, remote = call.words, call.name == "ssh"
        if remote:
            at = next((index for index, word in enumerate(words) if index and has_launcher(word.text)), None)
        else:
            at = next((index + 1 for index, word in enumerate(words) if re.fullmatch(r"-\w*c", word.text)), None)
        if at is None or at >= len(words) or self.nested >= _DEEPEST:
            return False
        before = len(self._reading.launches)
        self.nested += 1
        for each in commands(" ".join(word.text for word in words[at:]) if remote else words[at].text, words[at].line):
            self._read_inner(each, call.tasks)
        self.nested -= 1
        kept = len(self._reading.launches) > before
        for name in dict.fromkeys(name for word in words for name in word.assumed if kept):
            self._note(words[at].line, f"${name}", "not set in the script: its default is used")
        if remote and kept:
            self._note(words[0].line, call.written(at), "not needed: the job starts every node")
        return kept

    def _wrapped(self, call: Call) -> bool:
        place, at = WRAPPERS.get(call.name), call.launcher_at()
        if place is None or at is None or not self.launch(call.after(at)):
            return False
        self._note(call.words[0].line, call.written(at), f"not carried over: {place}")
        return True

    def _note(self, line: int, text: str, message: str) -> None:
        self._reading.notes.append(Note(line, text, message))
