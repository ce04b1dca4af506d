"""The SBOM of an image that has been built, from the packages that its file system says are installed.

podman export "$(podman create IMAGE)" | python -m hack.release.image_sbom NAME > NAME.cdx.json
"""

import argparse
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from hack.cache import ROOT
from hack.console import StepError, main_guard
from hack.project import project_version
from hack.release.installed import DPKG_STATUS, installed_packages, is_metadata
from hack.release.sbom import image_sbom
from hack.release.settings import Release
from hack.release.sources import commit_time


def metadata_of_archive(stream: IO[bytes]) -> dict[str, bytes]:
    """The files about packages in a .tar of a root file system, read once from its beginning to its end.

    Raises:
        tarfile.TarError: it is not a .tar.
    """
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in archive:
            path = member.name.removeprefix("./").lstrip("/")
            content = archive.extractfile(member) if member.isreg() and is_metadata(path) else None
            if content is not None:
                found[path] = content.read()
    return found


def metadata_of_folder(root: Path) -> dict[str, bytes]:
    """The same of a root file system that is unpacked in a folder."""
    paths = ((path.relative_to(root).as_posix(), path) for path in root.rglob("*"))
    return {name: path.read_bytes() for name, path in paths if is_metadata(name) and path.is_file()}


def sbom_of(name: str, root: Path | None) -> str:
    """The SBOM of an image, with the version and the time of the last commit.

    Args:
        name: of the image, without its tag.
        root: folder with its file system; None reads a .tar of it from standard input.

    Raises:
        StepError: that is not the file system of an image that is based on Debian.
    """
    try:
        files = metadata_of_folder(root) if root else metadata_of_archive(sys.stdin.buffer)
    except tarfile.TarError as error:
        raise StepError(f"standard input is not a .tar of a file system: {error}") from error
    return sbom_of_files(name, files, Release(project_version(), commit_time(ROOT), registry="", url=""))


def sbom_of_files(name: str, files: Mapping[str, bytes], release: Release, identity: str = "") -> str:
    """The SBOM of an image.

    Args:
        name: of the image, without its tag.
        files: contents of its files about packages, by their paths relative to the root.
        release: what is released.
        identity: the id of the image, such as sha256:0123; "" leaves it out.

    Raises:
        StepError: they are not of an image that is based on Debian.
    """
    if DPKG_STATUS not in files:
        raise StepError(
            f"there is no {DPKG_STATUS} in {name}: this is not the file system of an image that is based on Debian"
        )
    return image_sbom(name, installed_packages(files), release, identity)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hack.release.image_sbom", description="Print an image's SBOM.")
    parser.add_argument("name", help="of the image, without its tag")
    parser.add_argument("root", nargs="?", type=Path, help="folder with its file system; else a .tar on standard input")
    arguments = parser.parse_args()
    try:
        sys.stdout.write(sbom_of(arguments.name, arguments.root))
    except StepError as error:
        main_guard(error)


if __name__ == "__main__":
    main()
