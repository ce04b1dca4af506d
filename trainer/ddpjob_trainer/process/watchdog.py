"""Shows where a rank hangs: one of its threads dumps all stacks when no step has finished for too long."""

import contextlib
import faulthandler
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Final

from ddpjob_trainer.process.activity import LONG, Activity, Pulse

PATIENCE_WITH_LONG: Final = 10
"""How many deadlines a checkpoint or an evaluation may take."""
_CHECKS_PER_DEADLINE: Final = 20
_LONGEST_INTERVAL: Final = 5.0
_SHOWN_CALLS: Final = 8
_LONGEST_STACK: Final = 2000


class Watchdog:
    """Watches a rank from its first finished step on; a rank that never reports a step is never considered to hang."""

    def __init__(self, rank: int, pulse: Pulse, deadline: float, say: Callable[[str], None] | None = None) -> None:
        """Args:
        rank: of this process, for the heading of the dump.
        pulse: of this process.
        deadline: seconds without a finished step after which the stacks are dumped.
        say: called with the heading, writes the stacks; None writes both to standard error.
        """
        self._rank = rank
        self._pulse = pulse
        self._deadline = deadline
        self._say = say or dump_stacks
        self._dumped: int | None = None
        self._stack = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ddpjob-watchdog", daemon=True)

    def start(self) -> None:
        """Watch until `close`, or until the process ends."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def stack(self, step: int) -> str | None:
        """Where the training was found to hang after this step; None if it was not, or has continued."""
        return self._stack if self._dumped == step else None

    def check(self) -> None:
        """Dump the stacks if no step has finished for too long; once per stall, which ends with a new step."""
        now = self._pulse.moment()
        if now.step is None or now.step == self._dumped or now.activity is Activity.FINISHED:
            return
        patience = PATIENCE_WITH_LONG if now.activity in LONG else 1
        if now.quiet_seconds < self._deadline * patience:
            return
        self._stack = training_stack()
        self._dumped = now.step
        self._say(
            f"rank {self._rank} has not finished a step for {now.seconds_since_step:.0f} s: step {now.step} is done, "
            f"activity {now.activity} for {now.activity_seconds:.0f} s; stacks of all threads:"
        )

    def _watch(self) -> None:
        interval = min(self._deadline / _CHECKS_PER_DEADLINE, _LONGEST_INTERVAL)
        while not self._closing.wait(interval):
            self.check()


def training_stack() -> str:
    """The innermost calls of the thread that trains, formatted as in a traceback."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 no public function returns it
    return "".join(traceback.format_stack(frame, limit=None)[-_SHOWN_CALLS:])[-_LONGEST_STACK:] if frame else ""


def dump_stacks(head: str) -> None:
    """Write a line and the stacks of all threads of this process to standard error."""
    # A closed stream must not end the thread that watches.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{head}\n{_stacks()}\n")
        sys.stderr.flush()


def _stacks() -> str:
    # Through a file, since all ranks of a node write to one stream, and faulthandler writes word by word.
    try:
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            return file.read().decode(errors="replace")
    except OSError as reason:
        return f"(no stacks: no folder for temporary files: {reason})"
