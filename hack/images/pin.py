"""Write images/bases.lock.yaml: the digests of base images, asked of their registries, and a snapshot of Debian."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.console import StepError, main_guard, say
from hack.images.bases import LOCK, Lock, base_names, checked_time, pinned, read_lock, written
from hack.images.dockerfile import DockerfileError
from hack.images.registry import digest_of, reference


def renewed(before: Lock, names: Sequence[str], snapshot: str | None, ask: Callable[[str], str]) -> Lock:
    """A lock with the digests of now.

    Args:
        before: what the lock says now.
        names: of the base images to look up, while others stay as they are; without any, exactly those that
            Dockerfiles name.
        snapshot: of Debian's archive, "" for none; None leaves it as it is.
        ask: the digest of an image that it is given by name.
    """
    found = {name: ask(name) for name in names or base_names()}
    digests = {**before.digests, **found} if names else found
    return Lock(digests, before.snapshot if snapshot is None else snapshot)


def write(lock: Lock, path: Path) -> None:
    """Write the lock's file, whole or not at all."""
    text = written(lock)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(text)
            file.close()
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _ask(name: str) -> str:
    digest = digest_of(reference(name))
    say(f"  {name}  {digest}")
    return digest


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hack.images.pin", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a base image to look up; else all of them")
    parser.add_argument(
        "--lock", type=Path, default=LOCK, help="the file, images/bases.lock.yaml where it is not given"
    )
    parser.add_argument(
        "--snapshot", metavar="TIME", help="of Debian's archive, such as 20261101T000000Z; '' for none; else it stays"
    )
    parser.add_argument(
        "--print", type=Path, metavar="DOCKERFILE", help="print it as the lock pins it, and ask no registry"
    )
    arguments = parser.parse_args()
    try:
        if arguments.print is not None:
            sys.stdout.write(pinned(arguments.print.read_text(encoding="utf-8"), read_lock(arguments.lock)))
            return
        snapshot = None if arguments.snapshot is None else checked_time(arguments.snapshot, "--snapshot")
        before = read_lock(arguments.lock) if arguments.lock.exists() else Lock()
        write(renewed(before, arguments.names, snapshot, _ask), arguments.lock)
    except (OSError, DockerfileError) as error:
        main_guard(StepError(str(error)))
    except StepError as error:
        main_guard(error)
    say(f"written: {arguments.lock}")


if __name__ == "__main__":
    main()
