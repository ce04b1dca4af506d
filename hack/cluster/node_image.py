"""Base images and the node image, built from Debian packages where no image registry can be reached."""

import shutil
import tempfile
from pathlib import Path
from typing import Final

from hack.cache import ROOT, built, cache_folder, hash_of
from hack.cluster.engine import NODE_IMAGE, Engine, Source
from hack.cluster.programs import KUBERNETES_VERSION, NODE, programs_folder
from hack.console import StepError, run_step, say

_FOLDER: Final = ROOT / "images/kind-node"
NODE_REPOSITORY: Final = "localhost/ddpjob-kind-node"
_BASE: Final = "docker.io/library/debian:{suite}-slim"
BASE_LABEL: Final = "ddpjob.dev/base"
# What makes an image small, as in Docker's own Debian images: no caches of apt, no manuals, no translations.
_SLIM: Final = (
    '--aptopt=Dir::Cache::pkgcache ""',
    '--aptopt=Dir::Cache::srcpkgcache ""',
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; }',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
# The names that kubeadm of this Kubernetes version asks for.
_CONTROL_PLANE: Final = {
    "kube-apiserver": f"registry.k8s.io/kube-apiserver:{KUBERNETES_VERSION}",
    "kube-controller-manager": f"registry.k8s.io/kube-controller-manager:{KUBERNETES_VERSION}",
    "kube-scheduler": f"registry.k8s.io/kube-scheduler:{KUBERNETES_VERSION}",
    "kube-proxy": f"registry.k8s.io/kube-proxy:{KUBERNETES_VERSION}",
    "etcd": "registry.k8s.io/etcd:3.6.5-0",
    "coredns": "registry.k8s.io/coredns/coredns:v1.12.1",
    "pause": "registry.k8s.io/pause:3.10.1",
}


def base_image(engine: Engine, suite: str, log: Path) -> None:
    """Have Debian's base image under the name that Dockerfiles write after FROM; from a registry it comes by itself.

    An image of that name that was not made here belongs to another user, and is used as it is.
    """
    name = _BASE.format(suite=suite)
    key = hash_of([], suite, *_SLIM)
    if engine.source is Source.REGISTRY or _is_current(engine, name, key):
        return

    def bootstrap(work: Path) -> None:
        command = ["mmdebstrap", "--variant=minbase", *_SLIM, suite, str(work / "root.tar")]
        run_step(f"base image debian:{suite}-slim from Debian's archive", command, log)

    archive = built(cache_folder() / f"base-{suite}" / key, bootstrap) / "root.tar"
    command = [engine.program, "import", f"--change=LABEL {BASE_LABEL}={key}", str(archive), name]
    run_step(f"importing {name}", command, log, env=engine.environment)


def _is_current(engine: Engine, name: str, key: str) -> bool:
    found = engine.output("image", "inspect", "--format", f'{{{{index .Labels "{BASE_LABEL}"}}}}', name)
    return found is not None and found.strip() in ("", "<no value>", key)


def node_image(engine: Engine, log: Path) -> str:
    """The name of the node image: kind's own where a registry is reached, else one built here, once for its inputs.

    Raises:
        StepError: a step of the build failed.
    """
    if engine.source is Source.REGISTRY:
        return NODE_IMAGE
    key = hash_of([_FOLDER], KUBERNETES_VERSION)
    tag = f"{NODE_REPOSITORY}:{key}"
    if engine.output("image", "exists", tag) is None:
        archive = built(cache_folder() / "node-image" / key, lambda work: _archive(engine, work, tag, log))
        if engine.output("image", "exists", tag) is None:
            command = [engine.program, "load", "-i", str(archive / "image.tar")]
            run_step("node image from the cache", command, log, env=engine.environment)
    return tag


def forget_older_node_images(engine: Engine, tag: str) -> None:
    """Remove the node images that are not `tag`; one that nodes still run stays."""
    listing = engine.output("images", "--format", "{{.Repository}}:{{.Tag}}", NODE_REPOSITORY) or ""
    for older in sorted(set(listing.split()) - {tag}):
        engine.output("image", "rm", older)


def _archive(engine: Engine, work: Path, tag: str, log: Path) -> None:
    """Build the node image, and keep it where `make clean` leaves it."""
    programs = programs_folder(log, NODE)
    say("node image: building it from Debian packages and Kubernetes' programs (about 4 minutes)")
    base_image(engine, "bookworm", log)
    with tempfile.TemporaryDirectory(prefix="ddpjob-node-") as folder:
        context = Path(folder)
        _fill_context(context, programs)
        archives = _control_plane_images(engine, context, log)
        _node(engine, context, archives, tag, log)
    command = [engine.program, "save", "-o", str(work / "image.tar"), tag]
    run_step("keeping the node image in the cache", command, log, env=engine.environment)


def _fill_context(context: Path, programs: Path) -> None:
    shutil.copytree(_FOLDER / "rootfs", context / "rootfs")
    shutil.copytree(
        _FOLDER / "network_policy", context / "network_policy", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(programs, context / "bin", ignore=shutil.ignore_patterns("build-*"))
    for name in ("Dockerfile", "control-plane.Dockerfile"):
        shutil.copy(_FOLDER / name, context / name)


def _control_plane_images(engine: Engine, context: Path, log: Path) -> Path:
    for target, name in _CONTROL_PLANE.items():
        command = [engine.program, "build", "--network=host", "--target", target, "-t", name]
        command += ["-f", str(context / "control-plane.Dockerfile"), str(context)]
        run_step(f"image {name}", command, log, env=engine.environment)
    archive = context / "images.tar"
    command = [engine.program, "save", "--multi-image-archive", "-o", str(archive), *_CONTROL_PLANE.values()]
    run_step("saving the control plane's images", command, log, env=engine.environment)
    engine.output("image", "rm", *_CONTROL_PLANE.values())
    return archive


def _node(engine: Engine, context: Path, archive: Path, tag: str, log: Path) -> None:
    """Build the node image, and put the control plane's images into its containerd before it is given its name."""
    raw = f"{tag}-raw"
    command = [engine.program, "build", "--network=host", "-t", raw]
    command += ["--build-arg", f"KUBERNETES_VERSION={KUBERNETES_VERSION}", str(context)]
    run_step("node image", command, log, env=engine.environment)
    script = (
        "set -e; containerd >/var/log/containerd-import.log 2>&1 & "
        "for try in $(seq 100); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done; "
        "ctr -n k8s.io images import --no-unpack /images.tar; "
        "kill %1; wait %1 || true; rm -f /var/log/containerd-import.log"
    )
    container = "ddpjob-node-image-build"
    engine.output("rm", "-f", container)
    command = [engine.program, "run", "--name", container, "--privileged", "--network=none"]
    command += ["-v", f"{archive}:/images.tar:ro", "--entrypoint", "/bin/bash", raw, "-c", script]
    try:
        run_step("loading the control plane's images into the node image", command, log, env=engine.environment)
        changes = ['ENTRYPOINT ["/usr/local/bin/entrypoint"]', "CMD []"]
        commit = [engine.program, "commit", "-q", *(f"--change={change}" for change in changes), container, tag]
        run_step("committing the node image", commit, log, env=engine.environment)
    finally:
        engine.output("rm", "-f", container)
        engine.output("image", "rm", raw)
    if engine.output("image", "exists", tag) is None:
        raise StepError("the node image was committed but cannot be found")
