"""Archives whose bytes depend on what is in them alone: not on the machine, the user, the umask or the time."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = 0o644
_EXECUTABLE: Final = 0o755
_ANY_EXECUTE: Final = 0o111


@dataclass(frozen=True)
class Entry:
    """A file of an archive: its contents, and whether it is a program."""

    data: bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        """Its permissions, which everyone has except that the owner alone may write."""
        return _EXECUTABLE if self.executable else _PLAIN


def packed(entries: Mapping[str, Entry], epoch: int) -> bytes:
    """A .tar.gz with files in the order of their names, owned by root.

    Args:
        entries: the files by their paths, which are separated by `/`.
        epoch: time of last change of all of them, in seconds since 1970.
    """
    buffer = io.BytesIO()
    # No name of a file, and a fixed time: gzip writes both into its header.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, entry in sorted(entries.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(entry.data), entry.mode, epoch
            member.uname = member.gname = "root"
            archive.addfile(member, io.BytesIO(entry.data))
    return buffer.getvalue()


def entries_of(archive: bytes) -> dict[str, Entry]:
    """The files of a .tar.gz; folders follow from their paths.

    Raises:
        ValueError: it has links or devices.
    """
    found: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member in opened:
            if member.isdir():
                continue
            content = opened.extractfile(member) if member.isreg() else None
            if content is None:
                raise ValueError(f"{member.name} is neither a file nor a folder")
            found[member.name] = Entry(content.read(), executable=bool(member.mode & _ANY_EXECUTE))
    return found
