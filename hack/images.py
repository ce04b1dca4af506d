"""The operator's and the trainer's images, built once for their inputs, on the nodes that lack them."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.build_settings import build_settings
from hack.cache import BUILD, ROOT, hash_of
from hack.cluster import NAME
from hack.console import StepError, output_of, run_step, say
from hack.delta import lacking_layers, layers_of, write_delta
from hack.dockerfile import needs
from hack.engine import Engine
from hack.node_image import base_image

_BASE_IMAGE: Final = re.compile(r"docker\.io/library/debian:([a-z]+)-slim")


@dataclass(frozen=True)
class Image:
    """An image of this repository: a target of one of its Dockerfiles.

    Attributes:
        name: as manifests and jobs write it.
        dockerfile: path below the repository's root.
        target: stage of the Dockerfile; "" is the last one.
        variable: the environment variable that tells tests its name when it was pushed to a registry.
    """

    name: str
    dockerfile: str
    target: str
    variable: str

    @property
    def local_name(self) -> str:
        """The name by which a node finds it: what has no host in its name is Docker Hub's to Kubernetes."""
        return f"docker.io/library/{self.name}"

    def keyed(self, key: str) -> str:
        """The name that says what it was built from, so that an older image can never pass for it."""
        return f"{self.local_name.rpartition(':')[0]}:{self.name.rpartition(':')[2]}-{key}"


IMAGES: Final = (
    Image("ddpjob-operator:dev", "images/operator/Dockerfile", "", "DDPJOB_OPERATOR_IMAGE"),
    Image("ddpjob-torch:cpu", "images/trainer/Dockerfile", "torch", "DDPJOB_TORCH_IMAGE"),
    Image("ddpjob-trainer:cpu", "images/trainer/Dockerfile", "trainer", "DDPJOB_TRAINER_IMAGE"),
)
PROMETHEUS: Final = Image("ddpjob-prometheus:dev", "images/prometheus/Dockerfile", "", "DDPJOB_PROMETHEUS_IMAGE")
"""Tests alone need it: what a user waits for does not."""
EXAMPLES: Final = Image("ddpjob-examples:cpu", "images/trainer/Dockerfile", "examples", "DDPJOB_EXAMPLES_IMAGE")
"""Two of the examples need it."""
ALL_IMAGES: Final = (*IMAGES, PROMETHEUS, EXAMPLES)
# On stages that no image is made from layer by layer: they have no name, and stay as the cache of the next build.
STAGES_LABEL: Final = "ddpjob.dev/stages-of"
# podman's build names what it makes by so many digits.
_DIGITS_OF_A_SHORT_ID: Final = 11
_LOAD: Final = """
for node in "${@:2}"; do
  "$0" exec -i "$node" ctr -n k8s.io images import --snapshotter overlayfs - <"$1" &
  processes+=($!)
done
for process in "${processes[@]}"; do wait "$process" || failed=1; done
exit "${failed:-0}"
"""


def build_images(engine: Engine, log: Path, images: Sequence[Image] = IMAGES) -> dict[Image, str]:
    """Have all images in the engine, each under its own name and under the one that names its inputs.

    Returns:
        The name with the inputs' key of each image.

    Raises:
        StepError: a build failed.
    """
    return {image: _build(engine, image, log) for image in images}


def _build(engine: Engine, image: Image, log: Path) -> str:
    dockerfile = ROOT / image.dockerfile
    wanted = needs(dockerfile.read_text(), image.target)
    bases = [_have_base(engine, name, log) for name in wanted.base_images]
    inputs = [dockerfile, *(path for pattern in wanted.files for path in sorted(ROOT.glob(pattern.rstrip("/"))))]
    keyed = image.keyed(hash_of(inputs, image.target, *bases))
    older: list[str] = []
    if engine.output("image", "inspect", keyed) is None:
        command = [engine.program, "build", "-f", str(dockerfile), "-t", keyed]
        command += ["--target", image.target] if image.target else []
        begun = log.stat().st_size if log.is_file() else 0
        with build_settings(engine) as settings:
            command += [*settings, str(ROOT)]
            run_step(f"image {image.name}", command, log, env=engine.environment)
        older = _older(engine, image, keyed, log.read_bytes()[begun:].decode(errors="replace"))
    if engine.output("tag", keyed, image.local_name) is None:
        raise StepError(f"{engine.program} cannot tag {keyed} as {image.local_name}")
    # After the new one has taken the name that does not change: with its last name an image goes, else only the name.
    for name in older:
        # Refused where a container still runs it; it is tried again with the next build.
        engine.output("image", "rm", name)
    return keyed


def _older(engine: Engine, image: Image, keyed: str, said: str) -> list[str]:
    """What this image was before, and the stages that earlier builds of it left; `said` is the build's output."""
    listing = engine.output("images", "--format", "{{.Repository}}:{{.Tag}}") or ""
    stages = ("--filter", f"label={STAGES_LABEL}={image.name.partition(':')[0]}", "--filter", "dangling=true")
    nameless = engine.output("images", "-q", "--no-trunc", *stages) or ""
    return [*older_names(listing, image, keyed), *left_over(nameless, said)]


def left_over(nameless: str, said: str) -> list[str]:
    """Ids of nameless images of which a build said nothing: it neither made them nor found them in its cache.

    Args:
        nameless: ids, one a line, as `sha256:` and 64 digits.
        said: the build's output, which has at least the first digits of all that it used.
    """
    keys = nameless.split()
    return [key for key in keys if key.removeprefix("sha256:")[:_DIGITS_OF_A_SHORT_ID] not in said]


def _have_base(engine: Engine, name: str, log: Path) -> str:
    """The id of a base image, fetched or made first where it is not there."""
    suite = _BASE_IMAGE.fullmatch(name)
    if suite is not None:
        base_image(engine, suite[1], log)
    if engine.output("image", "inspect", name) is None:
        run_step(f"pulling {name}", [engine.program, "pull", name], log, env=engine.environment)
    found = engine.output("image", "inspect", "--format", "{{.Id}}", name)
    if found is None:
        raise StepError(f"base image {name} cannot be had")
    return found.strip()


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


def older_names(listing: str, image: Image, keyed: str) -> list[str]:
    """Names in a listing, one a line, of what this image was before."""
    prefix = image.keyed("")
    names = [line.split()[0] for line in listing.splitlines() if line.strip()]
    # docker leaves its registry's name out where podman and containerd write it.
    short = keyed.rpartition("/")[2]
    return [
        name for name in names if name.startswith((prefix, prefix.rpartition("/")[2])) and name not in (keyed, short)
    ]


def load_images(engine: Engine, built: Mapping[Image, str], programs: Path, log: Path) -> None:
    """Put images on the workers that lack them; the control plane runs no pod of ours.

    Raises:
        StepError: a node does not take an image.
    """
    listed = output_of([str(programs / "kind"), "get", "nodes", "--name", NAME], env=engine.environment) or ""
    if not listed:
        raise StepError(f"kind knows no cluster {NAME}; `make cluster` makes it")
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
        raise StepError(f"containerd on {node} does not answer; `make cluster` heals a cluster that is not well")
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
