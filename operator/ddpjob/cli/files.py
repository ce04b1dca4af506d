"""Files that a user names."""

import sys
from pathlib import Path

from ddpjob.errors import UsageProblem
from ddpjob.manifest import Document, read_documents


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        UsageProblem: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror or error}") from error


def read_file(path: Path) -> list[Document]:
    """The objects in a manifest file, or on standard input where it is named "-".

    Raises:
        UsageProblem: it cannot be read, or is no manifest.
    """
    name = "standard input" if str(path) == "-" else str(path)
    content = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
    try:
        return read_documents(content.decode(), name)
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{name} is no text: {error.reason} at byte {error.start}") from error
