"""Files named by a user."""

from pathlib import Path

from ddpjob.manifests.documents import Document, read_documents
from ddpjob_core.api.errors import UsageProblem


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        UsageProblem: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        # A name that no file can have.
        raise UsageProblem(f"{str(path)!r} cannot be read: {error}") from error


def text_of(content: bytes, name: str) -> str:
    """The text in a file's content.

    Args:
        content: of the file.
        name: of the file, for messages.

    Raises:
        UsageProblem: it is not text.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{name} is not text: {error.reason} at byte {error.start}") from error


def read_manifest(path: Path) -> list[Document]:
    """The objects in a manifest file.

    Raises:
        UsageProblem: it cannot be read, or is not a manifest.
    """
    return read_documents(text_of(read_bytes(path), str(path)), str(path))
