"""What a release is: its version, its time, and where its parts will be found."""

from dataclasses import dataclass

from hack.images.image import IMAGES


@dataclass(frozen=True)
class Release:
    """A release.

    Attributes:
        version: of all of its parts, such as 1.2.3.
        epoch: when its commit was made, in seconds since 1970.
        registry: host and path of the images, such as registry.example/team; empty leaves their names without one.
        url: where its files will be served, without a slash at the end.
    """

    version: str
    epoch: int
    registry: str
    url: str

    @property
    def operator_image(self) -> str:
        """Name of the operator's image, without a tag: the tag is the version."""
        return self._named(IMAGES[0].short_name)

    def image(self, short_name: str) -> str:
        """Name of an image with its tag, which is the version.

        Args:
            short_name: such as ddpjob-trainer.
        """
        return f"{self._named(short_name)}:{self.version}"

    def _named(self, short_name: str) -> str:
        return f"{self.registry.rstrip('/')}/{short_name}" if self.registry else short_name
