"""Base images by digest, and Debian's packages of one moment, where base images come from a registry.

images/bases.lock.yaml has both. Dockerfiles name tags, so that they can be built by hand; what is built here from a
registry's bases is built from a copy of the Dockerfile in which the digests replace the tags.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml

from hack.cache import ROOT
from hack.console import StepError
from hack.images.dockerfile import needs

LOCK: Final = ROOT / "images/bases.lock.yaml"
PIN_COMMAND: Final = ".venv/bin/python -m hack.images.pin"
# The others are of a cluster that is only built here where no registry can be reached.
_DOCKERFILES: Final = ("images/operator/*Dockerfile", "images/trainer/*Dockerfile", "images/prometheus/*Dockerfile")
_FIELDS: Final = ("bases", "snapshot")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_TIME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_FROM: Final = re.compile(r"(\s*FROM\s+(?:--\S+\s+)*)(\S+)(.*)", re.IGNORECASE | re.DOTALL)
_SOURCES: Final = "/etc/apt/sources.list.d/debian.sources"
_APT_SETTINGS: Final = "/etc/apt/apt.conf.d/80snapshot"
_HEADER: Final = f"""\
# The base images of images/*/Dockerfile by digest, for builds that take them from a registry, and the snapshot of
# Debian's archive that their packages come from. Written by: {PIN_COMMAND}
"""


@dataclass(frozen=True)
class Lock:
    """What base images are pinned to; without arguments nothing is.

    Attributes:
        digests: of the index or manifest of each base image, by its name as Dockerfiles write it.
        snapshot: of Debian's archive, such as 20261101T000000Z; "" takes what Debian offers on the day.
    """

    digests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    snapshot: str = ""


def read_lock(path: Path = LOCK) -> Lock:
    """Read the lock.

    Raises:
        StepError: it cannot be read, or a field is not what it must be; the message names the field.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StepError(f"{path} cannot be read: {error}") from error
    return checked(content, str(path))


def checked(content: object, where: str) -> Lock:
    """The lock in the content of its file.

    Args:
        content: as YAML has it.
        where: name of the file, for messages.

    Raises:
        StepError: a field is not what it must be; the message names the field.
    """
    if not isinstance(content, dict) or not content.keys() <= set(_FIELDS):
        raise StepError(f"{where}: it must have the fields {' and '.join(_FIELDS)}, and no others")
    bases, snapshot = content.get("bases") or {}, content.get("snapshot") or ""
    if not isinstance(bases, dict):
        raise StepError(f"{where}: bases must map names of images to digests")
    for name, digest in bases.items():
        if not isinstance(name, str) or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise StepError(f"{where}: bases.{name} is {digest!r}; it must be sha256: and 64 hexadecimal digits")
    return Lock(MappingProxyType(bases), checked_time(snapshot, f"{where}: snapshot"))


def checked_time(text: object, where: str) -> str:
    """The time of a snapshot, or "".

    Args:
        text: what was given.
        where: what it was given as, for the message.

    Raises:
        StepError: it is not a time as Debian's archive of snapshots writes it.
    """
    if text != "" and (not isinstance(text, str) or not _TIME.fullmatch(text)):
        raise StepError(f"{where} is {text!r}; it must be a time in UTC such as 20261101T000000Z, or empty")
    return str(text)


def written(lock: Lock) -> str:
    """The text of the lock's file."""
    text = yaml.safe_dump({"bases": dict(sorted(lock.digests.items())), "snapshot": lock.snapshot}, sort_keys=False)
    return f"{_HEADER}{text}"


def base_names(root: Path = ROOT) -> list[str]:
    """The base images of all images that are published or tested, as Dockerfiles write them."""
    files = [path for pattern in _DOCKERFILES for path in sorted(root.glob(pattern))]
    return sorted({name for path in files for name in _origins(path.read_text(encoding="utf-8"))})


def _origins(text: str) -> set[str]:
    found = [match for line in text.splitlines() if (match := _FROM.fullmatch(line))]
    stages = {match[3].split()[-1] for match in found if match[3].split()}
    return {match[2] for match in found} - stages - {"scratch"}


def unpinned(names: Iterable[str], lock: Lock) -> list[str]:
    """Those of the base images that the lock does not have, in order."""
    return sorted(set(names) - lock.digests.keys())


def by_digest(name: str, lock: Lock) -> str:
    """What to pull for a base image: repository@digest, or the name where it is not pinned."""
    digest = lock.digests.get(name)
    return f"{_without_tag(name)}@{digest}" if digest else name


def needs_snapshot(name: str, lock: Lock) -> bool:
    """Whether packages that are installed on this base image come from the snapshot."""
    return bool(lock.snapshot) and _without_tag(name).rpartition("/")[2] == "debian"


def _without_tag(name: str) -> str:
    path, colon, tag = name.partition("@")[0].rpartition(":")
    # A colon before a slash is that of a port.
    return path if colon and "/" not in tag else name.partition("@")[0]


def pinned(text: str, lock: Lock) -> str:
    """A Dockerfile with digests for tags, and with the snapshot set up in every stage that is based on Debian's image.

    Args:
        text: the Dockerfile.
        lock: what base images are pinned to.

    Raises:
        DockerfileError: it has no stage.
    """
    needs(text)
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        match = _FROM.fullmatch(line)
        if match is None:
            lines.append(_other_sources(line, lock))
            continue
        begin, name, rest = match.groups()
        lines.append(f"{begin}{by_digest(name, lock)}{rest}")
        if needs_snapshot(name, lock):
            if not line.endswith("\n"):
                lines.append("\n")
            lines.append(f"RUN {snapshot_script(lock.snapshot)}\n")
    return "".join(lines)


def _other_sources(line: str, lock: Lock) -> str:
    """A line that may copy from a base image, or mount it."""
    return re.sub(r"(\bfrom=)([^\s,]+)", lambda match: match[1] + by_digest(match[2], lock), line)


def snapshot_script(time: str, sources: str = _SOURCES, settings: str = _APT_SETTINGS) -> str:
    """A command that has apt take all packages from a snapshot of Debian's archive.

    Debian's images name the snapshot that they were made from in a comment above the address of each archive. The
    comment, with another time, becomes the address. It fails where an address has no such comment.

    Args:
        time: of the snapshot.
        sources: apt's list of archives, in the form of Debian's images since 12.
        settings: file for the setting without which apt refuses indexes that are older than a week.
    """
    swap = rf"s|^# *(https?://.*/)[0-9]{{8}}T[0-9]{{6}}Z/?$|URIs: \1{time}|; T; n; /^URIs:/d"
    return (
        f"sed -i -E '{swap}' {sources}"
        f" && grep -q '^URIs:.*/{time}$' {sources}"
        f" && ! grep '^URIs:' {sources} | grep -v '/{time}$' >&2"
        f" && echo 'Acquire::Check-Valid-Until \"false\";' > {settings}"
        f" || {{ echo 'no snapshot is named in {sources} of this base image' >&2; exit 1; }}"
    )
