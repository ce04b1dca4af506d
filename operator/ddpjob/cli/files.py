"""Files named on the command line, including standard input."""

import sys
from pathlib import Path

from ddpjob.manifests.documents import Document, read_documents
from ddpjob.manifests.files import read_bytes, text_of
from ddpjob_core.api.errors import UsageProblem


def read_text(path: Path) -> str:
    """The text of a file, or of standard input if the path is "-".

    Raises:
        UsageProblem: it cannot be read, or is not text.
    """
    return text_of(read_bytes(path) if str(path) != "-" else _standard_input(), name_of(path))


def read_file(path: Path) -> list[Document]:
    """The objects in a manifest file, or on standard input if the path is "-".

    Raises:
        UsageProblem: it cannot be read, or is not a manifest.
    """
    return read_documents(read_text(path), name_of(path))


def name_of(path: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if str(path) == "-" else str(path)


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise UsageProblem(f"standard input cannot be read: {error.strerror or error}") from error
