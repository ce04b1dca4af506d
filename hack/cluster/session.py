"""Run a module or a program against the cluster: python -m hack.cluster.session hack.demo, or -- kubectl get nodes."""

import os
import sys
from collections.abc import Mapping, Sequence

from hack.cache import only_one
from hack.cluster.engine import choose_engine
from hack.cluster.kind import LOG, ensure_cluster, existing_cluster
from hack.console import StepError, main_guard, say
from hack.images.build import build_images
from hack.images.image import ALL_IMAGES, IMAGES, Image
from hack.images.load import load_images, push_images


def cluster_with_images(images: Sequence[Image] = IMAGES) -> Mapping[str, str]:
    """A cluster that is well, with this tree's images: the variables by which programs find them.

    Args:
        images: those of them that are wanted.

    Raises:
        StepError: a step of the set-up failed.
    """
    with only_one("set-up", say):
        if os.environ.get("USE_EXISTING_CLUSTER") == "1":
            return _existing(images)
        engine = choose_engine(LOG)
        cluster = ensure_cluster(engine, LOG)
        load_images(engine, build_images(engine, LOG, images), cluster.programs, LOG)
        return cluster.environment


def _existing(images: Sequence[Image]) -> Mapping[str, str]:
    found = existing_cluster()
    registry = os.environ.get("IMAGE_REGISTRY")
    if not registry:
        names = ", ".join(image.name for image in images)
        say(f"images: its nodes must have {names}; or set IMAGE_REGISTRY to a registry to push to and pull from")
        return found
    engine = choose_engine(LOG)
    return {**found, **push_images(engine, build_images(engine, LOG, images), registry, LOG)}


def main() -> None:
    """Become the program, with the cluster's variables; without a program the set-up is all."""
    arguments = sys.argv[1:]
    try:
        os.environ.update(cluster_with_images(ALL_IMAGES if "pytest" in arguments else IMAGES))
    except StepError as error:
        main_guard(error)
    if arguments:
        command = arguments[1:] if arguments[0] == "--" else [sys.executable, "-m", *arguments]
        os.execvp(command[0], command)  # noqa: S606 - the program that the person at the keyboard named


if __name__ == "__main__":
    main()
