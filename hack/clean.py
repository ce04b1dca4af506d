"""`make clean`: removes cluster, images, network, volumes and files, by the names and labels that they were given."""

import argparse
import shutil
from collections.abc import Iterable
from typing import Final

from hack.cache import BUILD, cache_folder, only_one
from hack.checks.torch_tests import CONTAINER
from hack.cluster.engine import INSTALLED_PACKAGES, NETWORK, Engine, Source, usable_programs
from hack.cluster.kind import IPV6_CLUSTER, NAME, cluster_folder
from hack.cluster.leftovers import remove_folder
from hack.cluster.node_image import BASE_LABEL, NODE_REPOSITORY
from hack.console import StepError, main_guard, output_of, say
from hack.images.image import ALL_IMAGES

_CLUSTERS: Final = (NAME, IPV6_CLUSTER)
_NAMES: Final = [image.local_name.rpartition(":")[0] for image in ALL_IMAGES]
# docker leaves its registry's name out.
_REPOSITORIES: Final = (*_NAMES, *(name.rpartition("/")[2] for name in _NAMES), NODE_REPOSITORY)


def our_images(listing: str, labelled: Iterable[str]) -> list[str]:
    """What to give to `image rm`: our names, and the ids of nameless images that were built on our base image.

    Args:
        listing: lines of id, repository and tag, separated by spaces.
        labelled: ids of the images with our base's label; an image that others built on it has a name of theirs.
    """
    ids = set(labelled)
    rows = [line.split() for line in listing.splitlines() if line.strip()]
    base = {f"{repository}:{tag}" for key, repository, tag in rows if key in ids and repository.endswith("/debian")}
    ours = {f"{repository}:{tag}" for _, repository, tag in rows if repository in _REPOSITORIES and tag != "<none>"}
    named = {key for key, repository, _ in rows if repository != "<none>"}
    return [*sorted(ours), *sorted(base), *sorted(ids - named)]


def remove_from(engine: Engine) -> None:
    """Remove all that is ours from an engine."""
    for name in _CLUSTERS:
        label = f"label=io.x-k8s.kind.cluster={name}"
        _remove(engine, "container", _ids(engine, "ps", "-aq", "--filter", label))
    _remove(engine, "container", _ids(engine, "ps", "-aq", "--filter", f"name=^{CONTAINER}"))
    _remove(engine, "volume", _volumes(engine))
    if NETWORK in _ids(engine, "network", "ls", "--format", "{{.Name}}"):
        _remove(engine, "network", [NETWORK])
    listing = engine.output("images", "--no-trunc", "--format", "{{.ID}} {{.Repository}} {{.Tag}}") or ""
    labelled = _ids(engine, "images", "--no-trunc", "-aq", "--filter", f"label={BASE_LABEL}")
    _remove(engine, "image", our_images(listing, labelled))


def _volumes(engine: Engine) -> list[str]:
    """Volumes of nodes whose containers are gone already; kind labels each with the node's name."""
    nodes = [f"{name}-{node}" for name in _CLUSTERS for node in ("control-plane", "worker", "worker2")]
    found = (_ids(engine, "volume", "ls", "-q", "--filter", f"label={node}") for node in nodes)
    return sorted({volume for volumes in found for volume in volumes})


def _ids(engine: Engine, *arguments: str) -> list[str]:
    return list(dict.fromkeys((engine.output(*arguments) or "").split()))


def _remove(engine: Engine, kind: str, names: list[str]) -> None:
    if not names:
        return
    # One by one: a name that goes with another one, or is still in use, must not keep the others from going.
    options = {"container": ["-f", "-v"], "volume": ["-f"], "network": [], "image": []}[kind]
    refused = [name for name in names if engine.output(kind, "rm", *options, name, timeout=120) is None]
    left = [name for name in refused if kind == "image" and engine.output("image", "inspect", name) is not None]
    say(f"clean: {engine.program}: {len(names) - len(left)} {kind}s removed" + (f", in use: {left}" if left else ""))


def main() -> None:
    """Remove, and say what is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also remove downloads and builds")
    everything = parser.parse_args().all
    try:
        _clean(everything=everything)
    except StepError as error:
        main_guard(error)


def _clean(*, everything: bool) -> None:
    with only_one("clean", say):
        engines = [Engine(program, Source.BUILD, "clean") for program in usable_programs()]
        for engine in engines:
            remove_from(engine)
        for name in _CLUSTERS:
            if engines:
                remove_folder(engines[0], cluster_folder(name))
            else:
                shutil.rmtree(cluster_folder(name), ignore_errors=True)
        packages = INSTALLED_PACKAGES.read_text().split() if INSTALLED_PACKAGES.is_file() else []
        if everything:
            output_of(["chmod", "-R", "u+w", str(cache_folder())])
            shutil.rmtree(cache_folder(), ignore_errors=True)
    if everything:
        shutil.rmtree(BUILD, ignore_errors=True)
    kept = [] if everything else [f"downloads and builds in {cache_folder()} (make clean-cache removes them)"]
    kept += [f"Debian packages: {' '.join(packages)}"] if packages else []
    say("clean: done" + (f"; left: {'; '.join(kept)}" if kept else ""))


if __name__ == "__main__":
    main()
