"""A clock that a test moves."""

from collections.abc import Callable


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> "Call":
        entry = (self.now + seconds, call)
        self.calls.append(entry)
        return Call(self, entry)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for entry in sorted(self.calls, key=lambda entry: entry[0]):
            if entry[0] <= self.now and entry in self.calls:
                self.calls.remove(entry)
                entry[1]()


class Call:
    def __init__(self, clock: Clock, entry: tuple[float, Callable[[], None]]) -> None:
        self.clock, self.entry = clock, entry

    def cancel(self) -> None:
        if self.entry in self.clock.calls:
            self.clock.calls.remove(self.entry)
