"""What is installed in the file system of an image, by what the package managers have written there."""

import email.parser
import re
from collections.abc import Iterator, Mapping
from typing import Final

from packageurl import PackageURL

from hack.release.components import Package, python_package

DPKG_STATUS: Final = "var/lib/dpkg/status"
OS_RELEASE: Final = "usr/lib/os-release"
_DPKG_FILES: Final = re.compile(r"var/lib/dpkg/info/[^/]+\.list")
_PYTHON_METADATA: Final = re.compile(r"(?:.+/)?[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO)")
_INSTALLED: Final = "install ok installed"


def is_metadata(path: str) -> bool:
    """Whether `installed_packages` reads the file at this path, which is relative to the root."""
    return path in (DPKG_STATUS, OS_RELEASE) or bool(_DPKG_FILES.fullmatch(path) or _PYTHON_METADATA.fullmatch(path))


def installed_packages(files: Mapping[str, bytes]) -> list[Package]:
    """The packages of Debian and of Python that are installed.

    Args:
        files: contents of the files that `is_metadata` selects, by their paths relative to the root.
    """
    owned = {
        path.lstrip("/")
        for name, data in files.items()
        if _DPKG_FILES.fullmatch(name)
        for path in data.decode().splitlines()
    }
    own = [
        data.decode(errors="replace")
        for path, data in sorted(files.items())
        # Debian's packages of Python have such a file too, and are listed as Debian's.
        if _PYTHON_METADATA.fullmatch(path) and path not in owned
    ]
    distribution = _os_release(files.get(OS_RELEASE, b"").decode())
    debian = _debian_packages(files.get(DPKG_STATUS, b"").decode(), distribution)
    found = {str(package.purl): package for package in [*debian, *map(_described, own)]}
    return [found[purl] for purl in sorted(found)]


def _os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value.strip("\"'") for name, _, value in pairs}


def _debian_packages(status: str, distribution: Mapping[str, str]) -> Iterator[Package]:
    vendor = distribution.get("ID", "debian")
    release = distribution.get("VERSION_ID")
    for paragraph in status.split("\n\n"):
        fields = email.parser.Parser().parsestr(paragraph.strip("\n") + "\n\n", headersonly=True)
        if fields.get("Status") == _INSTALLED:
            name, version = fields["Package"], fields["Version"]
            qualifiers = {"arch": fields["Architecture"]} | ({"distro": f"{vendor}-{release}"} if release else {})
            yield Package(name, version, PackageURL("deb", vendor, name, version, qualifiers))


def _described(metadata: str) -> Package:
    fields = email.parser.Parser().parsestr(metadata, headersonly=True)
    return python_package(fields["Name"], fields["Version"])
