"""Signals and exit codes."""

import signal

# What a worker exits with once the ranks have agreed to stop and have saved.
AGREED_STOP = 128 + signal.SIGTERM
# What the agent exits with for another one to take its place in the same pod; a container never does.
AGAIN = 250
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def signal_name(number: int) -> str:
    """SIGTERM for 15; real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def container_code(code: int) -> int:
    """The container's exit code for a worker's: its own from 1 to 125, 128 + n for signal n, else 1."""
    if code < 0:
        return 128 - code
    return code if code <= 125 else 1  # noqa: PLR2004 -- above, a shell has meanings of its own
