"""Where built things are kept: under a hash of what they are made of, so that nothing is built twice."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / ".build"
_KEPT: Final = 2


def cache_folder() -> Path:
    """The folder that survives a fresh clone of the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ddpjob"


def hash_of(paths: Iterable[Path], *words: str) -> str:
    """A digest of files, of all files below folders, and of words; 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for path in paths:
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            if "__pycache__" in file.parts or any(part.endswith(".egg-info") for part in file.parts):
                continue
            name = file.relative_to(path.parent)
            executable = os.access(file, os.X_OK)
            digest.update(f"{name}\0{executable}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def built(target: Path, build: Callable[[Path], None]) -> Path:
    """The folder `target`, made by `build` in a temporary place first: half of it is never seen by anybody.

    The last of the older ones next to it stays, for anyone who goes back and forth between two branches.
    """
    if target.is_dir():
        target.touch()
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    # Some of it is mounted into containers with users of their own.
    work.chmod(0o755)
    try:
        build(work)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    forget_older(target.parent)
    return target


def forget_older(parent: Path) -> None:
    """Of folders for different inputs keep those that were used last."""
    for folder in sorted(parent.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def only_one(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the set-up: two runs at the same time on one machine would build and delete under each other."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what}: another run is setting up on this machine; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
