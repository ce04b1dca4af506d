"""The entry point of the installed programs `ddpjob` and `kubectl-ddpjob`."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ddpjob.views.exit_codes import ExitCode

_PACKAGES = ("typer", "rich", "kubernetes", "urllib3")


def main() -> None:
    """Run the command line, or say how to install its packages."""
    try:
        with _ended_by_ctrl_c():
            from ddpjob.cli.app import app  # noqa: PLC0415 a missing package is reported in a sentence
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        sys.stderr.write(f"Error: the package {error.name} is missing\n  -> pip install 'ddpjob[cli]'\n")
        sys.exit(ExitCode.USAGE)
    app()


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Loading takes long enough for a user to change their mind, and what is loaded may swallow exceptions."""
    # The parent process may have set Ctrl-C to be ignored, as a shell does for background jobs.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(ExitCode.INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
