"""What the launcher writes into the pod's log."""

import sys


def say(text: str) -> None:
    """Write one line."""
    print(f"ddpjob: {text}", file=sys.stderr, flush=True)  # noqa: T201
