"""What a release is built from: the files that git tracks, and the time of the commit."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.console import StepError
from hack.images.build import EPOCH_VARIABLE
from hack.release.archives import Entry

_PLAIN: Final = "100644"
_EXECUTABLE: Final = "100755"


def tracked_files(root: Path) -> dict[str, Entry]:
    """All files that git tracks, as they are in the working tree, by their paths.

    Whether one is a program is taken from git: modes on disk depend on the umask with which the repository was cloned.

    Raises:
        StepError: this is not a repository, a tracked file is missing, or git tracks something other than files.
    """
    files: dict[str, Entry] = {}
    for line in _git(root, "ls-files", "--stage", "-z").split("\0"):
        if line:
            about, _, name = line.partition("\t")
            mode = about.partition(" ")[0]
            if mode not in (_PLAIN, _EXECUTABLE):
                raise StepError(f"{name} is not a file, but git's mode {mode}: a release consists of files alone")
            try:
                files[name] = Entry((root / name).read_bytes(), executable=mode == _EXECUTABLE)
            except OSError as error:
                raise StepError(f"{name}, which git tracks, cannot be read: {error.strerror}") from error
    return files


def uncommitted(root: Path) -> list[str]:
    """The files that differ from the last commit, or that git neither tracks nor ignores.

    Raises:
        StepError: this is not a repository.
    """
    return [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]


def commit_time(root: Path, environment: Mapping[str, str] = os.environ) -> int:
    """When the last commit was made, in seconds since 1970; SOURCE_DATE_EPOCH takes precedence.

    Raises:
        StepError: this is not a repository, or SOURCE_DATE_EPOCH is not a number.
    """
    given = environment.get(EPOCH_VARIABLE) or _git(root, "log", "-1", "--format=%ct").strip()
    if not given.isdecimal():
        raise StepError(f"{EPOCH_VARIABLE} is {given!r}; it must be a number of seconds since 1970")
    return int(given)


def unpack(files: Mapping[str, Entry], folder: Path) -> None:
    """Write files below a folder, with modes that do not depend on the umask."""
    for name, entry in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.data)
        path.chmod(entry.mode)


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError as error:
        raise StepError(f"git cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise StepError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
