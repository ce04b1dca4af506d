"""What an SBOM lists."""

from dataclasses import dataclass

from packageurl import PackageURL
from packaging.utils import canonicalize_name


@dataclass(frozen=True)
class Package:
    """A package that something contains or needs.

    Attributes:
        name: as its kind of package writes it.
        version: the one that is locked or installed.
        purl: what names it among all packages (https://github.com/package-url).
        extras: those of ddpjob that need it; none if it is installed in an image.
        marker: environments that it is for, as PEP 508 writes them; "" is all of them.
    """

    name: str
    version: str
    purl: PackageURL
    extras: frozenset[str] = frozenset()
    marker: str = ""


def python_package(name: str, version: str, extras: frozenset[str] = frozenset(), marker: str = "") -> Package:
    """A package of Python, its name written in the one way that all tools compare."""
    name = str(canonicalize_name(name))
    return Package(name, version, PackageURL("pypi", None, name, version), extras, marker)
