"""Images on the nodes that lack them, or in a registry that the nodes pull from."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.cache import BUILD
from hack.cluster.engine import Engine
from hack.cluster.kind import NAME
from hack.console import StepError, output_of, run_step, say
from hack.images.delta import lacking_layers, layers_of, write_delta
from hack.images.image import Image, older_names

_LOAD: Final = """
for node in "${@:2}"; do
  "$0" exec -i "$node" ctr -n k8s.io images import --snapshotter overlayfs - <"$1" &
  processes+=($!)
done
for process in "${processes[@]}"; do wait "$process" || failed=1; done
exit "${failed:-0}"
"""


def nodes_that_lack(listings: Mapping[str, str], image: Image, keyed: str) -> list[str]:
    """The nodes on which an image is missing, or is another one under the same name.

    Args:
        listings: for each node the output of `ctr images ls`.
        image: the image.
        keyed: its name with the key of its inputs.
    """
    lacking = []
    for node, listing in listings.items():
        rows = (line.split() for line in listing.splitlines())
        digests = {row[0]: row[2] for row in rows if len(row) > 2}  # noqa: PLR2004 - REF TYPE DIGEST ...
        if keyed not in digests or digests.get(image.local_name) != digests[keyed]:
            lacking.append(node)
    return lacking


def load_images(engine: Engine, built: Mapping[Image, str], programs: Path, log: Path) -> None:
    """Put images on the workers that lack them; the control plane runs no pod of ours.

    Raises:
        StepError: a node does not take an image.
    """
    listed = output_of([str(programs / "kind"), "get", "nodes", "--name", NAME], env=engine.environment) or ""
    if not listed:
        raise StepError(f"kind has no cluster {NAME}; `make cluster` creates it")
    workers = [node for node in listed.split() if not node.endswith("-control-plane")]
    for image, keyed in built.items():
        listings = {node: _on_node(engine, node, "images", "ls") for node in workers}
        lacking = nodes_that_lack(listings, image, keyed)
        if lacking:
            _load(engine, image, keyed, lacking, log)
            for node in lacking:
                older = older_names(listings[node], image, keyed)
                if older:
                    _on_node(engine, node, "images", "rm", *older)
    say(f"images: {', '.join(image.name for image in built)} are on {', '.join(sorted(workers))}")


def _load(engine: Engine, image: Image, keyed: str, nodes: Sequence[str], log: Path) -> None:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="image-", dir=BUILD) as folder:
        archive, delta = Path(folder) / "image.tar", Path(folder) / "delta.tar"
        command = [engine.program, "save", "-o", str(archive), keyed]
        run_step(f"saving {image.name}", command, log, env=engine.environment)
        layers = layers_of(archive)
        snapshots = [_on_node(engine, node, "snapshots", "--snapshotter", "overlayfs", "ls") for node in nodes]
        for lacking in (lacking_layers(layers, snapshots), set(layers)):
            write_delta(archive, delta, [keyed, image.local_name], lacking)
            title = f"loading {len(lacking)} of {len(layers)} layers of {image.name} on {', '.join(nodes)}"
            try:
                run_step(title, ["bash", "-c", _LOAD, engine.program, str(delta), *nodes], log, env=engine.environment)
            except StepError:
                # A node may drop a layer that nothing uses between our look and our load.
                if len(lacking) == len(layers):
                    raise
            else:
                return


def _on_node(engine: Engine, node: str, *arguments: str) -> str:
    found = engine.output("exec", node, "ctr", "-n", "k8s.io", *arguments)
    if found is None:
        raise StepError(f"containerd on {node} does not answer; `make cluster` repairs the cluster")
    return found


def push_images(engine: Engine, built: Mapping[Image, str], registry: str, log: Path) -> dict[str, str]:
    """Push images to a registry that a cluster which is not ours can pull from.

    Returns:
        Variables that tell tests and demo the names there.
    """
    variables: dict[str, str] = {}
    for image, keyed in built.items():
        name = f"{registry.rstrip('/')}/{keyed.rpartition('/')[2]}"
        if engine.output("tag", keyed, name) is None:
            raise StepError(f"{engine.program} cannot tag {keyed} as {name}")
        hint = f"check IMAGE_REGISTRY, and log in: {engine.program} login {registry.split('/', maxsplit=1)[0]}"
        run_step(f"pushing {name}", [engine.program, "push", name], log, env=engine.environment, hint=hint)
        variables[image.variable] = name
    return variables
