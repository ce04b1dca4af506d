"""What a person reads while the set-up works: each step by name, its progress, and its log when it fails."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PROGRESS_EVERY_SECONDS: Final = 10.0
_TAIL_LINES: Final = 25
_WIDTH: Final = 100


class StepError(Exception):
    """A step of the set-up failed; the message says which, why and what to do."""


def say(text: str) -> None:
    """Print without buffering: a person watches."""
    print(text, flush=True)


def run_step(
    title: str,
    command: Sequence[str],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    hint: str = "",
    stdin: Path | None = None,
) -> None:
    """Run a long command with its output in a log; a line of progress appears every ten seconds.

    Args:
        title: what is being done, for a person.
        command: the program and its arguments.
        log: where the output goes; appended to.
        cwd: folder to run in.
        env: variables in addition to those of this process.
        hint: what to do when it fails.
        stdin: file to read from.

    Raises:
        StepError: the command failed; the end of its output is in the message.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"  {title} ...")
    begun = time.monotonic()
    done = threading.Event()
    with log.open("ab") as output, (stdin or Path(os.devnull)).open("rb") as source:
        output.write(f"\n=== {title}: {' '.join(command)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=source, stdout=output, stderr=output
            )
        except OSError as error:
            raise StepError(f"{title}: {command[0]} cannot be started: {error.strerror}") from error
        reporter = threading.Thread(target=_report, args=(log, begun, done), daemon=True)
        reporter.start()
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            done.set()
            reporter.join()
    took = time.monotonic() - begun
    if code != 0:
        raise StepError(
            f"{title} failed after {took:.0f} s (exit code {code}). Its last lines (all in {log}):\n"
            + "\n".join(f"    {line}" for line in _tail(log, _TAIL_LINES))
            + (f"\n  {hint}" if hint else ""),
        )
    if took > PROGRESS_EVERY_SECONDS:
        say(f"  {title}: done in {took:.0f} s")


def _report(log: Path, begun: float, done: threading.Event) -> None:
    while not done.wait(PROGRESS_EVERY_SECONDS):
        last = next(iter(_tail(log, 1)), "")
        say(f"    {time.monotonic() - begun:4.0f} s  {last[:_WIDTH]}")


def _tail(log: Path, lines: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16384))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()][-lines:]


def output_of(command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 60) -> str | None:
    """What a short command prints, or None where it cannot be run, fails or hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout, env={**os.environ, **(env or {})}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def main_guard(error: StepError) -> None:
    """End the program with a step's error in plain words."""
    sys.exit(f"\nmake: {error}")
