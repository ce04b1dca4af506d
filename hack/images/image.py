"""What the images of this repository are called, and what each is made from."""

from dataclasses import dataclass, replace
from typing import Final


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

    @property
    def short_name(self) -> str:
        """The name without a tag, such as ddpjob-operator."""
        return self.name.partition(":")[0]

    @property
    def of_release(self) -> "Image":
        """The same under a name that no test and no cluster uses."""
        return replace(self, name=f"{self.short_name}:release")

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


def older_names(listing: str, image: Image, keyed: str) -> list[str]:
    """Names in a listing, one per line, of earlier versions of this image."""
    prefix = image.keyed("")
    names = [line.split()[0] for line in listing.splitlines() if line.strip()]
    # docker leaves its registry's name out where podman and containerd write it.
    short = keyed.rpartition("/")[2]
    return [
        name for name in names if name.startswith((prefix, prefix.rpartition("/")[2])) and name not in (keyed, short)
    ]
