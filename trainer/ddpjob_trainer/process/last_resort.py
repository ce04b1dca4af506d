"""Ends a process that was asked to stop but cannot, as SIGTERM ends one without a handler, before SIGKILL does."""

import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from ddpjob_trainer.process.activity import LONG, Pulse
from ddpjob_trainer.process.watchdog import dump_stacks

_RESERVE: Final = 5.0
"""Seconds of the grace period that are left for showing the stacks, but not more than half of it."""
_INTERVAL: Final = 0.25
_NO_DESCRIPTOR: Final = -1


class LastResort:
    """Waits in a thread for SIGTERM, and then for a step to end.

    Python runs its handlers in the main thread, and never while that waits in a collective for a rank that is gone.
    """

    def __init__(
        self,
        pulse: Pulse,
        grace_period: float,
        leave: Callable[[str], None] | None = None,
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        pulse: of this process.
        grace_period: seconds from SIGTERM to SIGKILL.
        asked: called on SIGTERM, in the thread, whatever the main thread waits for.
        leave: called with the reason why the process must end, in one line; None prints all stacks and ends it.
        """
        self._pulse = pulse
        self._patience = grace_period - min(_RESERVE, grace_period / 2)
        self._leave = leave or _end_process
        self._asked = asked
        self._closing = threading.Event()
        self._watching = False
        self._reader, self._writer = socket.socketpair()
        self._writer.settimeout(0)
        self._thread = threading.Thread(target=self._watch, name="ddpjob-last-resort", daemon=True)

    def start(self) -> None:
        """Watch until `close`; only in the main thread, and not if something else already receives signals this way."""
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before != _NO_DESCRIPTOR:
            signal.set_wakeup_fd(before)
            return
        self._watching = True
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        self.leave_signals_alone()
        # Processes that were forked meanwhile, such as a data loader's, hold it open.
        self._writer.shutdown(socket.SHUT_RDWR)
        self._writer.close()
        if self._thread.is_alive():
            self._thread.join()
        self._reader.close()

    def leave_signals_alone(self) -> None:
        """Receive no further signals."""
        if self._watching:
            self._watching = False
            signal.set_wakeup_fd(_NO_DESCRIPTOR)

    def overdue(self, seconds: float) -> bool:
        """Whether waiting any longer is pointless, this number of seconds after SIGTERM: SIGKILL leaves no trace."""
        # What is being saved or evaluated may still come to its end.
        return seconds >= self._patience and self._pulse.moment().activity not in LONG

    def _watch(self) -> None:
        # Every signal of the process arrives here, as one byte each.
        while signal.SIGTERM not in (received := self._reader.recv(64)):
            if not received:
                return
        asked = time.monotonic()
        self._asked()
        while not self._closing.wait(_INTERVAL):
            if self.overdue(time.monotonic() - asked):
                now = self._pulse.moment()
                self._leave(
                    f"asked to stop, but no step has finished for {now.quiet_seconds:.0f} s (activity {now.activity}): "
                    "this rank ends without saving; stacks of all threads:"
                )
                return


def _end_process(reason: str) -> None:
    dump_stacks(reason)
    # Python lets only the main thread do this.
    default = ctypes.c_void_p(int(signal.SIG_DFL))
    ctypes.CDLL(None).signal(ctypes.c_int(signal.SIGTERM), default)
    os.kill(os.getpid(), signal.SIGTERM)
