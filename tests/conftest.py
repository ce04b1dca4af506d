"""What all tests need, wherever they run."""

import signal


def pytest_configure() -> None:
    """Let programs that tests start be interrupted: a shell has what it starts in the background ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
