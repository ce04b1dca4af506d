"""Follows the files that running pods write their output to."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

_LOOK_EVERY: Final = 0.1
_LONGEST_LINE: Final = 64 * 1024


class Tails:
    """Passes every complete line of every followed file on, in the order of each file."""

    def __init__(self, line: Callable[[str, str], None]) -> None:
        """Args:
        line: called with the pod and the line, without the line break.
        """
        self._line = line
        self._files: list[tuple[str, BinaryIO, bytearray]] = []

    def follow(self, pod: str, file: Path) -> None:
        """Follow a file that exists."""
        self._files.append((pod, file.open("rb"), bytearray()))

    async def run(self) -> None:
        """Look for new lines until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_EVERY)

    def look(self) -> None:
        """Pass on what was written since the last look."""
        for pod, file, rest in self._files:
            while chunk := file.read(_LONGEST_LINE):
                rest.extend(chunk)
                *lines, tail = bytes(rest).split(b"\n")
                rest[:] = b"" if len(tail) > _LONGEST_LINE else tail
                for line in [*lines, *([tail] if len(tail) > _LONGEST_LINE else [])]:
                    self._line(pod, line.decode("utf-8", "replace").rstrip("\r"))

    def close(self) -> None:
        """Pass on what is left, whole lines or not."""
        self.look()
        for pod, file, rest in self._files:
            if rest:
                self._line(pod, bytes(rest).decode("utf-8", "replace"))
            file.close()
        self._files.clear()
