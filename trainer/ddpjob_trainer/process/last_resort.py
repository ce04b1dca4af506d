"""Ends a process that was asked to stop but cannot, as SIGTERM ends a process without a handler."""

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

LEAST_PATIENCE: Final = 10.0
"""Seconds without a finished step after SIGTERM: less than the 30 of a pod or torchrun, which end in SIGKILL."""
STEPS_OF_PATIENCE: Final = 3
_INTERVAL: Final = 0.25
_NO_DESCRIPTOR: Final = -1


class LastResort:
    """Waits in a thread for SIGTERM, and then for a step to end.

    Python runs its handlers in the main thread, and never while that waits in a collective for a rank that is gone.
    """

    def __init__(
        self, pulse: Pulse, seconds_per_step: Callable[[], float], leave: Callable[[str], None] | None = None
    ) -> None:
        """Args:
        pulse: of this process.
        seconds_per_step: as measured, 0 if unknown.
        leave: called with the reason why the process must end, in one line; None prints all stacks and ends it.
        """
        self._pulse = pulse
        self._seconds_per_step = seconds_per_step
        self._leave = leave or _end_process
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
        """Whether waiting any longer is pointless, this number of seconds after SIGTERM."""
        now = self._pulse.moment()
        patience = max(LEAST_PATIENCE, STEPS_OF_PATIENCE * self._seconds_per_step())
        # Long activities may go on until the sender of SIGTERM sends SIGKILL.
        return now.activity not in LONG and min(seconds, now.quiet_seconds) >= patience

    def _watch(self) -> None:
        # Every signal of the process arrives here, as one byte each.
        while signal.SIGTERM not in (received := self._reader.recv(64)):
            if not received:
                return
        asked = time.monotonic()
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
