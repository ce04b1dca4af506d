"""What the wheel needs, from its own metadata and from the locks that uv writes."""

import email.parser
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.release.components import Package, python_package

_PIN: Final = re.compile(r"([A-Za-z0-9][\w.-]*)==")
_VIA: Final = re.compile(r"\s+# +(?:via\b *)?([A-Za-z0-9][\w.-]*)?")


def locked_packages(locks: Mapping[str, str]) -> list[Package]:
    """The packages of locks, each once.

    Args:
        locks: the texts of files of requirements, by the extra of ddpjob that each resolves.

    Raises:
        ValueError: a line does not pin one version.
    """
    found: dict[tuple[str, str, str], set[str]] = {}
    for extra, text in locks.items():
        for pin in _pins(text):
            found.setdefault(pin, set()).add(extra)
    return [
        python_package(name, version, frozenset(extras), marker)
        for (name, version, marker), extras in sorted(found.items())
    ]


def _pins(lock: str) -> Iterator[tuple[str, str, str]]:
    for line in re.sub(r"^\s*#.*\n", "", lock, flags=re.MULTILINE).replace("\\\n", " ").splitlines():
        text = line.partition(" --hash=")[0].strip()
        if text:
            requirement = Requirement(text)
            versions = [each.version for each in requirement.specifier if each.operator == "=="]
            if len(versions) != 1 or len(requirement.specifier) != 1:
                raise ValueError(f"{text!r} does not pin one version")
            yield str(canonicalize_name(requirement.name)), versions[0], str(requirement.marker or "")


def required_by(lock: str) -> dict[str, set[str]]:
    """For each package of a lock, the names of those that require it, from uv's comments (`# via`)."""
    found: dict[str, set[str]] = {}
    package = ""
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            package = str(canonicalize_name(pin[1]))
            found.setdefault(package, set())
        elif (via := _VIA.match(line)) and via[1]:
            found[package].add(str(canonicalize_name(via[1])))
    return found


def required_names(wheel: bytes, extras: Iterable[str]) -> set[str]:
    """What a wheel itself asks for, without and with some of its extras.

    Raises:
        ValueError: it is not a wheel.
    """
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        (path,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.parser.Parser().parsestr(opened.read(path).decode(), headersonly=True)
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    return {str(canonicalize_name(each.name)) for each in wanted if _is_for(each, extras)}


def _is_for(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a requirement is without an extra, or of one of these; other markers are for some systems."""
    named = set(re.findall(r"""extra == ["']([^"']+)["']""", str(requirement.marker or "")))
    return not named or not named.isdisjoint(extras)
