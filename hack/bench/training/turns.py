"""Two loops that take turns in one thread, so that whatever else the machine does harms both alike."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import add
from typing import Final

STEPS: Final = 10
"""Of a turn: with one log step in each."""
TURNS_OF_A_PAIR: Final = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """What so many steps took."""

    seconds: float
    processor_seconds: float
    """Of all threads of this process."""

    def __add__(self, other: "Turn") -> "Turn":
        """Both one after the other."""
        return Turn(self.seconds + other.seconds, self.processor_seconds + other.processor_seconds)


class Turns:
    """Hears of the steps of one loop, and after each of its turns lets the other loop have one.

    In threads of their own the loops would have different heaps, and glibc gives their memory back to the kernel in
    different ways: the same loop is then up to a third slower in one of them.
    """

    def __init__(self, other: Iterator[int]) -> None:
        """Args:
        other: the loop that makes a step whenever the next value is taken.
        """
        self._other = other
        self._begun = _now()
        self.own = list[Turn]()
        """The first has what comes before the loop's first step."""
        self.others = list[Turn]()

    def step_finished(self, step: int) -> None:
        """A step of the loop that takes no turns by itself is done."""
        if step % STEPS:
            return
        self.own.append(self._turn())
        for _ in islice(self._other, STEPS):
            pass
        self.others.append(self._turn())

    def _turn(self) -> Turn:
        begun, self._begun = self._begun, _now()
        return Turn(self._begun[0] - begun[0], self._begun[1] - begun[1])


def together(turns: Sequence[Turn], count: int) -> list[Turn]:
    """The sums of so many turns that follow each other; what is left over of the first ones is left out."""
    begin = len(turns) % count
    return [reduce(add, turns[index : index + count]) for index in range(begin, len(turns), count)]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
