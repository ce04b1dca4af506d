"""A command with its words expanded, and which words are launchers."""

from dataclasses import dataclass, replace
from typing import Final

from ddpjob.convert.commands import OTHER_LAUNCHERS, SHELLS, TRANSPARENT, WRAPPERS
from ddpjob.convert.python_line import is_python
from ddpjob.convert.shell import Command
from ddpjob.convert.srun import Tasks
from ddpjob.convert.variables import Text

MPIRUNS: Final = frozenset({"mpirun", "mpiexec", "orterun", "mpiexec.hydra", "prterun"})


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its words expanded; `tasks` are those of srun, if srun starts it."""

    words: tuple[Text, ...]
    command: Command
    tasks: Tasks | None = None

    @property
    def name(self) -> str:
        """The command's name without its folder."""
        return _base(self.words[0].text)

    def after(self, count: int) -> "Call":
        """The command that a wrapper of so many words starts."""
        return replace(self, words=self.words[count:])

    def written(self, count: int) -> str:
        """The first words as they are written."""
        return " ".join(word.raw for word in self.words[:count])

    def wrapped_at(self) -> int | None:
        """The position of the command that this one starts."""
        places = (index for index, word in enumerate(self.words) if index and _starts_something(word.text))
        return next(places, None)

    def launcher_at(self) -> int | None:
        """The position of the first launcher or shell after this command."""
        places = (index for index, word in enumerate(self.words) if index and is_launcher(word.text))
        return next(places, None)


def _base(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def is_launcher(text: str) -> bool:
    """Whether a word is a launcher itself."""
    return _base(text) in {"torchrun", "srun", *MPIRUNS, *SHELLS} or is_python(text)


def _starts_something(text: str) -> bool:
    """Whether a word after a wrapper is the command that it wraps."""
    return is_launcher(text) or _base(text) in {*WRAPPERS, *TRANSPARENT, *OTHER_LAUNCHERS, "env"}


def has_launcher(text: str) -> bool:
    """Whether one of the words in a text is a launcher."""
    return any(is_launcher(word) for word in text.split())
