"""What is told beside a manifest: a line of what was given, and what becomes of it."""

from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 90


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """What was not carried over, or not as it stands, and what takes its place."""

    line: int
    text: str
    message: str

    def told(self, source: str) -> str:
        """One line for a person.

        Args:
            source: name of the file.
        """
        return f"{source}:{self.line}: {short(self.text)}: {self.message}"


def short(text: str) -> str:
    """A piece of a script on one line."""
    plain = " ".join(text.replace("\\\n", " ").split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."
