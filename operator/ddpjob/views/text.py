"""Parts of text that several views share."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ddpjob_core.api.display import format_seconds
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.api.text import printable_line

_LONG = 40
"""Texts of more characters are not said twice."""


class Tone(StrEnum):
    """The meaning of a line; on a terminal it becomes a colour."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    DIM = "dim"
    TITLE = "title"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a view: a label (or none), its text, and its meaning; a full line has no column for labels."""

    text: str
    label: str = ""
    tone: Tone = Tone.PLAIN
    full: bool = False

    def __post_init__(self) -> None:
        """Keep what a program or another controller has written from acting on a terminal."""
        object.__setattr__(self, "text", printable_line(self.text))


_TONES = {
    Phase.SUCCEEDED: Tone.GOOD,
    Phase.RUNNING: Tone.GOOD,
    Phase.FAILED: Tone.BAD,
    Phase.STALLED: Tone.BAD,
    Phase.RESTARTING: Tone.WARN,
    Phase.SUSPENDING: Tone.WARN,
}


def tone_of(status: DDPJobStatus) -> Tone:
    """The tone of a job's phase; one that misleads by itself is bad."""
    return Tone.BAD if status.state is not None else _TONES.get(status.phase, Tone.PLAIN)


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago a moment was, as kubectl prints ages; "" if it is not known."""
    return "" if moment is None else format_seconds(max(0, int((now - moment).total_seconds())))


def block(label: str, text: str, tone: Tone = Tone.PLAIN) -> list[Line]:
    """A text of several lines under one label."""
    return [Line(line, label if number == 0 else "", tone) for number, line in enumerate(text.rstrip().split("\n"))]


def without(text: str, said: str, instead: str) -> str:
    """A text without the part of it that has already been said, if that is long, and with a short one in its place."""
    said = said.removesuffix("…")
    return text.replace(said, instead, 1) if len(said) > _LONG else text


def traceback_lines(traceback: str, said: str) -> list[str]:
    """The lines of a traceback; its last one is cut where it is long and has been said.

    Args:
        traceback: as Python writes it.
        said: the message that is shown with it.
    """
    lines = traceback.rstrip().split("\n")
    last = lines[-1].removesuffix("…")
    if len(last) > _LONG and last in said:
        lines[-1] = f"{last.partition(':')[0]}: …"
    return lines
