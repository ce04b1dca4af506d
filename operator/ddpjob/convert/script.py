"""Reads a job script line by line: its variables, its launch lines, and what replaces everything else."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ddpjob.convert.call import Call, is_launcher
from ddpjob.convert.commands import place_of
from ddpjob.convert.environment import with_assigned, with_exported
from ddpjob.convert.launch import Reading, RefusedError
from ddpjob.convert.launchers import Launchers
from ddpjob.convert.mpirun_line import ReadFile
from ddpjob.convert.notes import Note
from ddpjob.convert.shell import Command, Kind, Word, commands
from ddpjob.convert.srun import Tasks
from ddpjob.convert.variables import Text, Variables
from ddpjob_core.api.constants import is_reserved_env

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_OPENING: Final = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_CLOSING: Final = frozenset({"fi", "done", "esac", "}"})
_BETWEEN: Final = frozenset({"then", "do", "else", "elif", "!"})
_CONDITIONS: Final = frozenset({"if", "elif", "while", "until"})
_LOOPS: Final = frozenset({"for", "select"})
_EXPORTING: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
_HOSTS: Final = "not needed: the pods of a job find each other by name"
_LOG_FILE: Final = "not carried over: ddpjob logs and kubectl logs show the output of every pod"


def read_script(text: str, *, known: Mapping[str, str], read_file: ReadFile, tasks: Tasks, line: int = 1) -> Reading:
    """Read a script; nothing of it is run.

    Args:
        text: of the script, directives and all.
        known: variables that the scheduler sets.
        read_file: reads a hostfile that is named.
        tasks: what the scheduler was asked for, which srun inherits.
        line: number of its first line.

    Raises:
        UnreadableError: it is not a shell script.
    """
    reader = _Reader(Variables(known), read_file, tasks)
    reader.read(text, line)
    return reader.reading


class _Reader:
    def __init__(self, variables: Variables, read_file: ReadFile, tasks: Tasks) -> None:
        self.reading = Reading()
        self._variables = variables
        self._depth = 0
        self._launchers = Launchers(self.reading, self._variables, read_file, tasks, self._command)

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
        """The command after the keywords of a block, which also count how deeply it is nested."""
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
            if keyword in _CONDITIONS and len(words) > 1 and not is_launcher(words[1].raw):
                return ()
            words = words[1:]
        return words

    def _assigned_text(self, word: Word, match: re.Match[str]) -> Text:
        """The value that an assignment before a command sets."""
        texts = self._variables.expand(word)
        value = " ".join(text.text for text in texts).partition("=")[2]
        unknown = tuple(name for text in texts for name in text.unknown)
        return Text(value, word.line, word.raw, unknown or ((match[1],) if word.items is not None else ()))

    def _assign(self, word: Word, match: re.Match[str], *, exported: bool = False) -> None:
        name, certain = match[1], self._depth == 0
        known = self._variables.assign(name, word, certain=certain, append=bool(match[2]))
        # A variable of the launcher is noted where it is exported, or where a launch line sets it.
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
                    self._note(word.line, f"export {word.raw}", f"not needed: the launcher sets {name}")

    def _run(self, words: Sequence[Text], command: Command, assigned: Mapping[str, Text], tasks: Tasks | None) -> None:
        found = len(self.reading.launches)
        try:
            call = Call(tuple(words), command, tasks)
            if not self._launchers.launch(call):
                self._around(words, command)
        except RefusedError as refused:
            self.reading.refused.append(refused)
        new = self.reading.launches[found:]
        if new:
            self._redirected(command)
        for index, launch in enumerate(new, found):
            self.reading.launches[index] = (
                # An inner shell sees what the command around it sees, to whose launch that is added.
                with_assigned(launch, assigned)
                if self._launchers.nested
                else with_exported(launch, self._variables, assigned)
            )
            if self._depth and not self._launchers.nested:
                self._note(launch.line, launch.raw, "this is inside if, for or { }: converted as if it ran once")

    def _redirected(self, command: Command) -> None:
        for redirection in command.redirections:
            if not re.match(r"\d*<|.*(?:/dev/|&\d)", redirection):
                self._note(command.line, redirection, _LOG_FILE)

    def _around(self, words: Sequence[Text], command: Command) -> None:
        second = words[1].text if len(words) > 1 else ""
        if message := place_of(words[0].text, second):
            self._note(command.line, command.raw, message)


def _assigned(word: Word) -> re.Match[str] | None:
    """NAME= at the start of a word, unless it is quoted."""
    if not word.pieces or word.pieces[0].kind is not Kind.LITERAL or word.pieces[0].quoted:
        return None
    return _ASSIGNMENT.match(word.pieces[0].text)
