"""Notes printed with a manifest: a line of the input, and what replaces it."""

from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 90


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """Something that was not carried over, or not unchanged, and what replaces it."""

    line: int
    text: str
    message: str

    def sentence(self, source: str) -> str:
        """One line for a person.

        Args:
            source: name of the file.
        """
        return f"{source}:{self.line}: {short(self.text)}: {self.message}"


def short(text: str) -> str:
    """A piece of a script on one line."""
    plain = " ".join(text.replace("\\\n", " ").split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."
