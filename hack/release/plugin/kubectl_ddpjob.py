#!/usr/bin/env python3
"""`kubectl ddpjob`, as krew installs it: the first run installs ddpjob into a virtual environment of its own.

Next to this file are the wheel of ddpjob and a lock of the packages that it needs. A Python that is too old for
ddpjob reads this file too, to look for a newer one, so nothing here is newer than Python 3.6.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

LEAST = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")
PROGRAM = "kubectl-ddpjob"
LOCK = "requirements.lock"
COMPLETE = "complete"
# What the command line itself exits with where something that it needs is missing.
USAGE = 2


def main(arguments: "list[str]") -> None:
    """Become the installed program, which is installed first where it is not there."""
    if sys.version_info < LEAST:
        become_newer(arguments)
    here = Path(__file__).resolve().parent
    (wheel,) = here.glob("ddpjob-*.whl")
    folder = cache_folder() / key(wheel, here / LOCK)
    if not is_complete(folder):
        install(folder, wheel, here / LOCK)
    os.execv(str(folder / "bin" / PROGRAM), [PROGRAM, *arguments])  # noqa: S606 - no shell, as intended


def become_newer(arguments: "list[str]") -> None:
    """Start again with a newer Python, or end with a sentence if there is none."""
    for name in NEWER:
        found = shutil.which(name)
        if found:
            os.execv(found, [found, str(Path(__file__).resolve()), *arguments])  # noqa: S606 - no shell, as intended
    wanted = ".".join(str(number) for number in LEAST)
    sys.stderr.write(
        f"Error: kubectl ddpjob needs Python {wanted} or newer, and {sys.executable} is older\n"
        "  -> install a newer Python and put it on PATH\n"
    )
    sys.exit(USAGE)


def cache_folder() -> Path:
    """Where virtual environments of the plugin are; each can be deleted at any time, and is made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ddpjob-plugin"


def key(wheel: Path, lock: Path) -> str:
    """What tells two virtual environments apart: what is installed, and for which Python."""
    digest = hashlib.sha256(wheel.read_bytes() + lock.read_bytes()).hexdigest()[:12]
    return f"{wheel.name.split('-')[1]}-py{sys.version_info[0]}.{sys.version_info[1]}-{digest}"


def is_complete(folder: Path) -> bool:
    """Whether a virtual environment has everything, and the Python that it was made with is still there."""
    return (folder / COMPLETE).exists() and (folder / "bin" / "python").exists()


def install(folder: Path, wheel: Path, lock: Path) -> None:
    """Make the virtual environment; of several at a time, one does, and the others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if is_complete(folder):
            return
        sys.stderr.write(f"kubectl ddpjob: installing its packages into {folder}, once\n")
        # Half of one, if the last attempt was interrupted.
        shutil.rmtree(str(folder), ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)], "python3 -m venv")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--require-hashes", "--requirement", str(lock)], f"installing the packages of {lock}")
        run([*pip, "--no-deps", "--no-index", str(wheel)], f"installing {wheel}")
        (folder / COMPLETE).touch()


def run(command: "list[str]", what: str) -> None:
    """Run a step, with its output where it does not mix with that of the program."""
    code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if code != 0:
        sys.stderr.write(f"Error: {what} failed (exit code {code})\n")
        sys.exit(USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
