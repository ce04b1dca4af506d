"""The SBOMs of the images that are published, each read from a container of the image that never runs."""

import contextlib
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hack.cache import only_one
from hack.cluster.engine import Engine, choose_engine
from hack.console import StepError, say
from hack.images.archive import save_archive
from hack.images.build import build_images
from hack.images.image import EXAMPLES, IMAGES, Image
from hack.release.image_sbom import metadata_of_archive, sbom_of_files
from hack.release.settings import Release

PUBLISHED: Final = (*IMAGES, EXAMPLES)
"""What users pull: not the image of Prometheus, which only tests run."""
# The image is there, or was there: one of the same name in a registry is another one.
_CREATE: Final = ("create", "--pull=never")


def image_sboms(
    release: Release, log: Path, images: Sequence[Image] = PUBLISHED, archives: Path | None = None
) -> dict[str, str]:
    """SBOMs by the names of their files; images are built first where they are not there.

    Args:
        release: what is released.
        log: for what the builds say.
        images: those that are wanted.
        archives: a folder for the images themselves, which are then built to be the same each time.

    Raises:
        StepError: there is no engine, a build failed, or an image could not be read.
    """
    # Held until they are read: another run may replace them.
    with only_one("images", say):
        try:
            engine = choose_engine(log)
        except StepError as error:
            hint = "or leave the images' SBOMs out: make release ARGS=--without-images"
            raise StepError(f"{error}\n  -> {hint}") from error
        if archives is None:
            built = build_images(engine, log, images)
        else:
            built = build_images(engine, log, [image.of_release for image in images], epoch=release.epoch)
            for image, keyed in built.items():
                save_archive(engine, keyed, release.image(image.short_name), archives / archive_name(image, release))
        return {
            file_name(image, release): sbom_of_image(engine, image.short_name, keyed, release)
            for image, keyed in built.items()
        }


def archive_name(image: Image, release: Release) -> str:
    """Name of the file with the image."""
    return f"{image.short_name}-{release.version}.oci.tar"


def file_name(image: Image, release: Release) -> str:
    """Name of the file with its SBOM."""
    return f"{image.short_name}-{release.version}.cdx.json"


def sbom_of_image(engine: Engine, name: str, reference: str, release: Release) -> str:
    """The SBOM of an image that the engine has: the same bytes each time.

    Args:
        engine: the engine.
        name: of the image in the SBOM, without a tag.
        reference: what the engine finds it by.
        release: what is released.

    Raises:
        StepError: the engine does not have it, or it is not based on Debian.
    """
    identity = engine.output("image", "inspect", "--format", "{{.Id}}", reference)
    if identity is None:
        raise StepError(f"{engine.program} has no image {reference}")
    say(f"release: SBOM of {name}")
    digest = f"sha256:{identity.strip().removeprefix('sha256:')}"
    with _container(engine, reference) as container:
        command = [engine.program, "export", container]
        environment = {**os.environ, **engine.environment}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as exported:
            assert exported.stdout is not None  # noqa: S101 - it is a pipe
            try:
                files = metadata_of_archive(exported.stdout)
                # What comes after the end of the archive: an engine that cannot write it all fails.
                while exported.stdout.read(1 << 16):
                    pass
            except tarfile.TarError as error:
                raise StepError(f"{engine.program} does not export {reference}: {error}") from error
        # An archive that ends between two files reads like a whole one.
        if exported.returncode != 0:
            raise StepError(f"{engine.program} does not export {reference} (exit code {exported.returncode})")
    return sbom_of_files(name, files, release, digest)


@contextlib.contextmanager
def _container(engine: Engine, reference: str) -> Iterator[str]:
    """The id of a container of an image, which exists for as long as its file system is read."""
    made = engine.output(*_CREATE, reference)
    if made is None:
        raise StepError(f"{engine.program} cannot create a container of {reference}")
    container = made.strip()
    try:
        yield container
    finally:
        engine.output("rm", container)
