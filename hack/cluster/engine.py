"""Which container engine this machine has, and whether images come from a registry or are built from packages."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from hack.cache import ROOT, cache_folder
from hack.console import StepError, output_of, run_step, say

# A network of our own, not the one that all kind clusters share: so it can be removed again.
NETWORK: Final = "ddpjob"
INSTALLED_PACKAGES: Final = cache_folder() / "installed-packages"
# Published for the version of kind that programs.py pins; of the same minor version as the one built here.
NODE_IMAGE: Final = "kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d"
_PACKAGES: Final = (
    "podman",
    "netavark",
    "aardvark-dns",
    "runc",
    "catatonit",
    "dbus",
    "iptables",
    "iproute2",
    "mmdebstrap",
    "buildah",
    "ca-certificates",
)


class Source(StrEnum):
    """Where node and base images come from."""

    REGISTRY = "registry"
    BUILD = "build"


@dataclass(frozen=True)
class Engine:
    """A container engine that has been seen to work, and where images come from."""

    program: str
    source: Source
    reason: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for the engine and for kind."""
        if self.program == "docker":
            return {"KIND_EXPERIMENTAL_PROVIDER": "docker", "KIND_EXPERIMENTAL_DOCKER_NETWORK": NETWORK}
        variables = {"KIND_EXPERIMENTAL_PROVIDER": "podman", "KIND_EXPERIMENTAL_PODMAN_NETWORK": NETWORK}
        if self.source is Source.BUILD:
            # By variable, so that the system's own configuration stays as it is.
            variables["CONTAINERS_CONF"] = str(ROOT / "images/containers.conf")
        return variables

    def output(self, *arguments: str, timeout: float = 60) -> str | None:
        """What a short command of the engine prints, or None where it fails."""
        return output_of([self.program, *arguments], env=self.environment, timeout=timeout)


def choose_engine(log: Path) -> Engine:
    """The engine to use, printed in one line with the reason; podman is installed where it is missing and can be.

    DDPJOB_CLUSTER=registry or build forces where images come from.

    Raises:
        StepError: no engine can be had.
    """
    forced = os.environ.get("DDPJOB_CLUSTER", "")
    if forced not in ("", *Source):
        raise StepError(f"DDPJOB_CLUSTER is {forced!r}; it must be registry, build or unset")
    refused: list[str] = []
    if forced != Source.BUILD:
        for program in ("docker", "podman"):
            why = _why_not(program)
            if why is None:
                return _announce(Engine(program, Source.REGISTRY, f"{program} runs and can reach an image registry"))
            refused.append(why)
        if forced == Source.REGISTRY:
            raise StepError(f"DDPJOB_CLUSTER=registry, but {'; '.join(refused)}")
    _install_podman(log)
    reason = "DDPJOB_CLUSTER=build" if forced else "; ".join(refused)
    return _announce(Engine("podman", Source.BUILD, reason))


def usable_programs() -> list[str]:
    """The engines on this machine that answer, whatever else they can do."""
    return [program for program in ("docker", "podman") if output_of([program, "info"], timeout=20) is not None]


def _announce(engine: Engine) -> Engine:
    origin = "images from the registry" if engine.source is Source.REGISTRY else "images built from Debian packages"
    say(f"engine: {engine.program}, {origin} ({engine.reason})")
    return engine


def _why_not(program: str) -> str | None:
    """Why an engine cannot be used with a registry, or None where it can.

    A binary proves nothing: a client without a daemon is common, and so is a daemon that refuses --privileged.
    """
    if shutil.which(program) is None:
        return f"{program} is not installed"
    if output_of([program, "info"], timeout=20) is None:
        return f"{program} has no usable daemon"
    repository = NODE_IMAGE.partition("@")[0]
    if output_of([program, "image", "inspect", NODE_IMAGE]) is None:
        if output_of([program, "manifest", "inspect", f"docker.io/{repository}"], timeout=30) is None:
            return f"{program} cannot reach an image registry"
        say(f"  pulling {repository} with {program} (about 1 GB)")
        if output_of([program, "pull", f"docker.io/{NODE_IMAGE}"], timeout=900) is None:
            return f"{program} cannot pull {repository}"
    privileged = [program, "run", "--rm", "--privileged", "--entrypoint", "/bin/true", NODE_IMAGE]
    return None if output_of(privileged, timeout=60) is not None else f"{program} refuses --privileged"


def _install_podman(log: Path) -> None:
    missing = [package for package in _PACKAGES if not _installed(package)]
    if missing:
        install_packages(missing, log)
    for key, least in (("max_user_instances", 1024), ("max_user_watches", 524288)):
        path = Path("/proc/sys/fs/inotify") / key
        if int(path.read_text()) < least:
            path.write_text(str(least))
    # kind mounts it into every node, whether the kernel has modules or not.
    Path("/lib/modules").mkdir(exist_ok=True)


def _installed(package: str) -> bool:
    status = output_of(["dpkg-query", "-W", "-f", "${Status}", package])
    return status is not None and status.endswith(" installed")


def install_packages(packages: list[str], log: Path) -> None:
    """Install Debian packages.

    Raises:
        StepError: this is not a Debian machine, or we are not root; the message says what to install.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise StepError(
            "no Docker or podman was found that can reach an image registry; install Docker, or run as root on Debian, "
            f"where this installs {' '.join(packages)}",
        )
    noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
    run_step("apt-get update", ["apt-get", "update"], log, env=noninteractive)
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    run_step(f"apt-get install {' '.join(packages)}", command, log, env=noninteractive)
    INSTALLED_PACKAGES.parent.mkdir(parents=True, exist_ok=True)
    with INSTALLED_PACKAGES.open("a") as record:
        record.write("".join(f"{package}\n" for package in packages))
