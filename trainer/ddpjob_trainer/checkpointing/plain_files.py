"""Files that another job, or a stranger on the same volume, may have put there.

Anyone who can write to a volume decides which weights the next job begins with. More than that must not follow: no file
outside is read, no device or pipe is waited for, and what is read has a bound.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

LARGEST_MANIFEST: Final = 1 << 27
"""Bytes of a manifest that is read: about a million tensors. As Python objects it takes several times as much."""
LARGEST_NOTE: Final = 1 << 20
"""Bytes of a note that is read."""


class NotPlainError(ValueError):
    """Something other than a file in its folder, or one that is too large to be read."""


def open_plain(path: Path) -> BufferedReader:
    """Open a file for reading, without following a symbolic link in the last part of the path.

    Raises:
        NotPlainError: it is a link, a device, a pipe, a socket or a folder.
        OSError: it cannot be opened.
    """
    # A pipe would otherwise wait for its writer, for ever.
    kind = _kind(path.lstat().st_mode)
    if kind is None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        # It may have become another one in between.
        kind = _kind(os.fstat(descriptor).st_mode)
        if kind is None:
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    raise NotPlainError(f"{path.name} is a {kind}, not a file")


def read_plain(path: Path, most: int) -> str:
    """The text of a file.

    Args:
        path: of the file.
        most: bytes of it, at most.

    Raises:
        NotPlainError: as `open_plain`; or it is larger.
        OSError: it cannot be read.
        ValueError: it cannot be decoded.
    """
    with open_plain(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise NotPlainError(f"{path.name} has more than {most} bytes")
    return found.decode("utf-8")


def file_in(folder: Path, name: str) -> Path:
    """The path of a file that is directly in a folder.

    Raises:
        NotPlainError: the name is that of something else.
    """
    if Path(name).name != name or name == "..":
        raise NotPlainError(f"{name!r} is not the name of a file in it")
    return folder / name


def _kind(mode: int) -> str | None:
    """What is not a file; None for a file."""
    kinds = {stat.S_ISLNK: "symbolic link", stat.S_ISDIR: "folder", stat.S_ISFIFO: "pipe", stat.S_ISSOCK: "socket"}
    return None if stat.S_ISREG(mode) else next((name for test, name in kinds.items() if test(mode)), "device")
