"""Text from outside, made harmless: it may end up on a terminal, in a log, in a table or in an event.

What a program, an image or another controller writes can hold escape sequences that change what a terminal shows or
what is on its clipboard, marks that turn the direction of writing, and line breaks that look like lines of ours.
"""

import re
from typing import Final

# Strings with an end (titles, clipboard, device control), control sequences (colours, cursor), and other escapes, in
# their 7-bit and 8-bit forms. A string that does not end in its line loses its introducer only.
_ESCAPES: Final = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f\n\r]*+(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"
    r"|\x1b[ -/]*+[0-~]"
)
_LINE_BREAKS: Final = re.compile("\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]")
_ROOM: Final = 4
"""How many times its limit a text may be long before it is cleaned, which takes time for each character."""


def one_line(text: str, most: int) -> str:
    """The text as one line of printable characters, its end left out where it has more than `most`."""
    kept = text if text.isprintable() else _printable(_ESCAPES.sub("", text[: most * _ROOM]))
    return shorten(kept.strip(), most)


def printable_line(text: str) -> str:
    """The text as one line of printable characters, however long, with its indentation."""
    return text if text.isprintable() else _printable(_ESCAPES.sub("", text.expandtabs()))


def last_lines(text: str, most: int) -> str:
    """The text as lines of printable characters, its beginning left out where it has more than `most`.

    A line keeps its indentation, since a traceback is read by it.
    """
    lines = _LINE_BREAKS.split(_ESCAPES.sub("", text[-most * _ROOM :]))
    kept = "\n".join(line if line.isprintable() else _printable(line) for line in lines)
    return kept if len(kept) <= most else "…" + kept[len(kept) - most + 1 :]


def shorten(text: str, most: int) -> str:
    """The text, cut to `most` characters, which then ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _printable(text: str) -> str:
    # Not printable are control characters, marks of direction and other formats, halves of surrogate pairs, characters
    # of private use, and all white space except the plain one.
    return "".join(character if character.isprintable() else " " if character.isspace() else "" for character in text)
