"""The packages of a root file system, from what dpkg and pip have written there."""

import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from hack.release.image_sbom import metadata_of_archive, metadata_of_folder
from hack.release.installed import installed_packages

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Description: GNU C Library
 A second line
 .
 and a third one

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1.0

Package: python3-prometheus-client
Status: install ok installed
Architecture: all
Version: 0.21.1+ds1-1
"""
OWN = "opt/ddpjob/lib/python3.13/site-packages/Kopf-1.45.2.dist-info/METADATA"
DEBIANS = "usr/lib/python3/dist-packages/prometheus_client-0.21.1.egg-info/PKG-INFO"
ROOT_FILES = {
    "var/lib/dpkg/status": STATUS,
    "var/lib/dpkg/info/python3-prometheus-client.list": f"/.\n/usr\n/{DEBIANS}\n",
    "usr/lib/os-release": 'ID=debian\nVERSION_ID="13"\n',
    OWN: "Metadata-Version: 2.4\nName: Kopf\nVersion: 1.45.2\n\nName: not this one\n",
    DEBIANS: "Metadata-Version: 2.1\nName: prometheus_client\nVersion: 0.21.1\n",
    "etc/passwd": "root:x:0:0\n",
}
PURLS = [
    "pkg:deb/debian/libc6@2.41-12?arch=amd64&distro=debian-13",
    "pkg:deb/debian/python3-prometheus-client@0.21.1%2Bds1-1?arch=all&distro=debian-13",
    "pkg:pypi/kopf@1.45.2",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in ROOT_FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def purls(files: dict[str, bytes]) -> list[str]:
    return [str(each.purl) for each in installed_packages(files)]


def test_of_a_package_of_debian_that_python_knows_too_only_debians_is_listed(root: Path) -> None:
    assert purls(metadata_of_folder(root)) == PURLS


@pytest.mark.parametrize("prefix", ["", "./", "/"])
def test_an_archive_of_the_root_says_the_same_as_the_folder(root: Path, prefix: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, f"{prefix}{path.relative_to(root)}", recursive=False)
    buffer.seek(0)
    found = metadata_of_archive(buffer)
    assert purls(found) == PURLS
    assert "etc/passwd" not in found


def test_the_packages_of_python_of_this_environment_are_found_with_their_versions() -> None:
    folder = Path(sysconfig.get_path("purelib"))
    found = {(each.name, each.version) for each in installed_packages(metadata_of_folder(folder))}
    metadata = [each.metadata for each in distributions(path=[str(folder)])]
    installed = {(str(canonicalize_name(each["Name"])), each["Version"]) for each in metadata}
    assert installed
    assert installed <= found


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this machine has no dpkg")
def test_the_packages_of_this_machine_are_those_that_dpkg_lists() -> None:
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Status}\t${Package}\t${Version}\t${Architecture}\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    rows = [line.split("\t") for line in listed]
    wanted = sorted((name, version, arch) for status, name, version, arch in rows if status == "install ok installed")
    status = Path("/var/lib/dpkg/status").read_bytes()
    found = installed_packages({"var/lib/dpkg/status": status})
    assert sorted((each.name, each.version, each.purl.qualifiers["arch"]) for each in found) == wanted


def test_a_file_system_without_dpkg_is_refused_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hack.release.image_sbom", "name", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "not the file system of an image that is based on Debian" in done.stderr
