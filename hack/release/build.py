"""All files of a release in a folder."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hack.console import say
from hack.release.archives import Entry
from hack.release.chart import chart_package
from hack.release.distributions import build_sdist, build_wheel
from hack.release.install import install_file
from hack.release.krew import archive_name, plugin_archive, plugin_manifest
from hack.release.locks import locked_packages, required_by
from hack.release.sbom import wheel_sbom
from hack.release.settings import Release
from hack.release.sources import unpack

CHECKSUMS: Final = "SHA256SUMS"
LOCKS: Final[Mapping[str, str]] = {
    "cli": "hack/release/plugin/requirements.lock",
    "operator": "images/operator/requirements.lock",
}
"""What the extras of the wheel need; torch and its like are chosen by the image in which a training runs."""

_WHOLE_LOCK: Final = "requirements.lock"
"""The others are parts of it; it alone says which package requires which."""


def build_release(
    files: Mapping[str, Entry],
    release: Release,
    kubectl: Path,
    output: Path,
    more: Mapping[str, str] = MappingProxyType({}),
    *,
    archives: Path | None = None,
) -> list[str]:
    """Build everything into a folder, which is emptied first.

    Args:
        files: of the repository, by their paths.
        release: what is released.
        kubectl: the program that renders manifests.
        output: the folder.
        more: texts of further files by their names, such as SBOMs of images.
        archives: folder of further files, such as images, which are moved from there.

    Returns:
        Names of the files, relative to the folder.

    Raises:
        StepError: a part could not be built; what the folder had before is still there.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=output.parent) as work:
        made, sources = Path(work) / "made", Path(work) / "sources"
        made.mkdir()
        unpack(files, sources)
        _build(files, sources, release, kubectl, made)
        for name, text in more.items():
            (made / name).write_text(text, encoding="utf-8")
        for file in archives.iterdir() if archives is not None else ():
            shutil.move(file, made / file.name)
        checksums(made)
        names = _names(made)
        for name in names:
            (made / name).chmod(0o644)
        shutil.rmtree(output, ignore_errors=True)
        made.rename(output)
    return names


def _build(files: Mapping[str, Entry], sources: Path, release: Release, kubectl: Path, made: Path) -> None:
    say("release: source distribution and wheel")
    sdist = build_sdist(sources, made, release.epoch)
    # From what is published: users who build it themselves get the same wheel.
    wheel = build_wheel(sdist, made, release.epoch)
    say("release: SBOM of the wheel")
    packages = locked_packages({extra: files[lock].data.decode() for extra, lock in LOCKS.items()})
    parents = required_by(files[_WHOLE_LOCK].data.decode())
    sbom = made / f"ddpjob-{release.version}.cdx.json"
    sbom.write_text(wheel_sbom(wheel.read_bytes(), packages, parents, release), encoding="utf-8")
    say("release: chart")
    (made / f"ddpjob-chart-{release.version}.tgz").write_bytes(chart_package(files, release))
    say("release: install.yaml")
    (made / "install.yaml").write_text(install_file(sources, kubectl, release), encoding="utf-8")
    say("release: kubectl plugin")
    archive = plugin_archive(files, wheel.name, wheel.read_bytes(), release)
    (made / archive_name(release.version)).write_bytes(archive)
    (made / "plugins").mkdir()
    (made / "plugins/ddpjob.yaml").write_text(plugin_manifest(archive, release), encoding="utf-8")


def checksums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads, for all other files of a folder."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in _names(folder) if name != CHECKSUMS]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        # An image need not fit into memory.
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
