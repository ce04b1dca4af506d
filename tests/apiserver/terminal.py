"""A program on a terminal of its own, as a person sees it."""

import os
import pty
import subprocess
import sys
import time
from collections.abc import Mapping
from select import select

PATIENCE = 30.0


class OnTerminal:
    """`ddpjob` with a pseudo-terminal for all that it reads and writes."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start it with these arguments, and variables on top of the usual ones."""
        self._end, inner = pty.openpty()
        plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddpjob.cli.entry", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**plain, "TERM": "xterm-256color", "COLUMNS": "200", **(environment or {})},
        )
        os.close(inner)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Read until it has shown a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert self._read(deadline), f"{text!r} was not shown: {self.shown!r}"

    def type(self, text: str) -> None:
        """Type as the person at the terminal does."""
        os.write(self._end, text.encode())

    def end(self) -> int:
        """Read what is left; the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        os.close(self._end)
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select([self._end], [], [], max(0.0, deadline - time.monotonic()))
        try:
            more = os.read(self._end, 65536) if ready else b""
        except OSError:
            # The program has closed its side.
            return False
        self.shown += more.decode(errors="replace")
        return bool(more)
