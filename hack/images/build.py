"""The operator's and the trainer's images, each built once for its inputs."""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hack.cache import ROOT, hash_of
from hack.cluster.engine import Engine, Source
from hack.cluster.node_image import base_image
from hack.console import StepError, run_step, say
from hack.images.bases import LOCK, PIN_COMMAND, Lock, by_digest, needs_snapshot, pinned, read_lock, unpinned
from hack.images.build_settings import build_settings
from hack.images.dockerfile import needs
from hack.images.image import IMAGES, Image, older_names

EPOCH_VARIABLE: Final = "SOURCE_DATE_EPOCH"
_BASE_IMAGE: Final = re.compile(r"docker\.io/library/debian:([a-z]+)-slim")

# On stages that no image is made from layer by layer: they have no name, and stay as the cache of the next build.
STAGES_LABEL: Final = "ddpjob.dev/stages-of"
# podman's build names what it makes by so many digits.
_DIGITS_OF_A_SHORT_ID: Final = 11


def build_images(
    engine: Engine,
    log: Path,
    images: Sequence[Image] = IMAGES,
    lock_file: Path = LOCK,
    epoch: int | None = None,
) -> dict[Image, str]:
    """Have all images in the engine, each under its own name and under the one that names its inputs.

    Args:
        engine: the engine.
        log: for what the builds say.
        images: those that are wanted.
        lock_file: what base images from a registry are pinned to.
        epoch: time of all that is in them, in seconds since 1970, for images that are the same whenever they are built.

    Returns:
        The name with the inputs' key of each image.

    Raises:
        StepError: a build failed.
    """
    if epoch is not None and engine.program != "podman":
        raise StepError(f"images that are the same each time are built with podman alone, not with {engine.program}")
    lock = _lock(engine, images, lock_file)
    return {image: _build(engine, image, log, lock, epoch) for image in images}


def _lock(engine: Engine, images: Sequence[Image], lock_file: Path) -> Lock:
    """What base images are pinned to; those that are made here of Debian's packages are not."""
    if engine.source is not Source.REGISTRY:
        return Lock()
    lock = read_lock(lock_file)
    names = {name for each in images for name in needs((ROOT / each.dockerfile).read_text(), each.target).base_images}
    loose = unpinned(names, lock)
    if loose:
        say(f"images: not pinned by digest: {', '.join(loose)}; `{PIN_COMMAND}` writes their digests into {LOCK.name}")
    return lock


def _build(engine: Engine, image: Image, log: Path, lock: Lock, epoch: int | None) -> str:
    dockerfile = ROOT / image.dockerfile
    wanted = needs(dockerfile.read_text(), image.target)
    bases = [_have_base(engine, by_digest(name, lock), log) for name in wanted.base_images]
    inputs = [dockerfile, *(path for pattern in wanted.files for path in sorted(ROOT.glob(pattern.rstrip("/"))))]
    snapshot = [lock.snapshot] if any(needs_snapshot(name, lock) for name in wanted.base_images) else []
    times = [str(epoch)] if epoch is not None else []
    keyed = image.keyed(hash_of(inputs, image.target, *bases, *snapshot, *times))
    older: list[str] = []
    if engine.output("image", "inspect", keyed) is None:
        begun = log.stat().st_size if log.is_file() else 0
        with build_settings(engine) as settings, _pinned_copy(dockerfile, lock) as copy:
            command = [engine.program, "build", "-f", str(copy), "-t", keyed]
            command += ["--target", image.target] if image.target else []
            command += [*_fixed(epoch), *settings, str(ROOT)]
            run_step(f"image {image.name}", command, log, env=engine.environment)
        # Not those of other builds, which stay as their cache.
        older = (
            [] if epoch is not None else _older(engine, image, keyed, log.read_bytes()[begun:].decode(errors="replace"))
        )
    if engine.output("tag", keyed, image.local_name) is None:
        raise StepError(f"{engine.program} cannot tag {keyed} as {image.local_name}")
    # After the new one has taken the name that does not change: with its last name an image goes, else only the name.
    for name in older:
        # Refused where a container still runs it; it is tried again with the next build.
        engine.output("image", "rm", name)
    return keyed


def _fixed(epoch: int | None) -> list[str]:
    """Options of podman's build for an image that is the same whenever it is built.

    Without the cache, since a layer there may be of another time.
    """
    if epoch is None:
        return []
    return [f"--timestamp={epoch}", f"--build-arg={EPOCH_VARIABLE}={epoch}", "--no-cache"]


@contextlib.contextmanager
def _pinned_copy(dockerfile: Path, lock: Lock) -> Iterator[Path]:
    """A Dockerfile with the lock's digests: itself where the lock does not change it."""
    before = dockerfile.read_text()
    after = pinned(before, lock)
    if after == before:
        yield dockerfile
        return
    with tempfile.TemporaryDirectory(prefix="ddpjob-dockerfile-") as folder:
        copy = Path(folder) / dockerfile.name
        copy.write_text(after)
        yield copy


def _older(engine: Engine, image: Image, keyed: str, output: str) -> list[str]:
    """What this image was before, and the stages that earlier builds of it left; `output` is the build's output."""
    listing = engine.output("images", "--format", "{{.Repository}}:{{.Tag}}") or ""
    stages = ("--filter", f"label={STAGES_LABEL}={image.name.partition(':')[0]}", "--filter", "dangling=true")
    nameless = engine.output("images", "-q", "--no-trunc", *stages) or ""
    return [*older_names(listing, image, keyed), *left_over(nameless, output)]


def left_over(nameless: str, output: str) -> list[str]:
    """Ids of nameless images that a build did not mention: it neither made them nor found them in its cache.

    Args:
        nameless: ids, one per line, each `sha256:` and 64 digits.
        output: the build's output, which has at least the first digits of all that it used.
    """
    keys = nameless.split()
    return [key for key in keys if key.removeprefix("sha256:")[:_DIGITS_OF_A_SHORT_ID] not in output]


def _have_base(engine: Engine, name: str, log: Path) -> str:
    """The id of a base image, fetched or made first where it is not there."""
    suite = _BASE_IMAGE.fullmatch(name)
    if suite is not None:
        base_image(engine, suite[1], log)
    if engine.output("image", "inspect", name) is None:
        run_step(f"pulling {name}", [engine.program, "pull", name], log, env=engine.environment)
    found = engine.output("image", "inspect", "--format", "{{.Id}}", name)
    if found is None:
        raise StepError(f"base image {name} is not available")
    return found.strip()
