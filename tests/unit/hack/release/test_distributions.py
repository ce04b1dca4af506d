"""What the wheel and the source distribution contain; tests/apiserver/release builds them twice."""

import os
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from installing import EPOCH, Built

from hack.cache import ROOT
from hack.console import StepError
from hack.project import project_version
from hack.release.archives import entries_of
from hack.release.distributions import build_sdist, build_wheel
from hack.release.sources import tracked_files, unpack

PACKAGES = {"ddpjob", "ddpjob_core", "ddpjob_launcher", "ddpjob_operator", "ddpjob_trainer"}
FOLDERS = ("operator/", "trainer/")
NAME = f"ddpjob-{project_version()}"


def expected() -> set[str]:
    """The files of the packages, as the wheel names them."""
    return {
        name.partition("/")[2]
        for name in tracked_files(ROOT)
        if name.startswith(FOLDERS) and name.split("/")[1] in PACKAGES
    }


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_wheel_has_every_file_of_the_packages_as_it_is_and_nothing_else(built: Built) -> None:
    found = {name: data for name, data in contents(built.wheel).items() if not name.startswith(f"{NAME}.dist-info/")}
    assert set(found) == expected()
    files = tracked_files(ROOT)
    for name, data in found.items():
        assert data == next(files[folder + name].data for folder in FOLDERS if folder + name in files)


def test_the_wheel_has_the_license_the_version_and_the_programs(built: Built) -> None:
    found = contents(built.wheel)
    assert found[f"{NAME}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    metadata = Parser().parsestr(found[f"{NAME}.dist-info/METADATA"].decode())
    assert metadata["Version"] == project_version()
    programs = found[f"{NAME}.dist-info/entry_points.txt"].decode().split()
    assert {"ddpjob", "kubectl-ddpjob", "kubectl_complete-ddpjob"} <= set(programs)


def test_the_source_distribution_has_what_the_wheel_is_built_from_and_nothing_else(built: Built) -> None:
    files = tracked_files(ROOT)
    found = {name.removeprefix(f"{NAME}/"): entry for name, entry in entries_of(built.sdist.read_bytes()).items()}
    ours = {name for name in found if name in files}
    packages = {name for name in files if name.startswith(FOLDERS) and name.split("/")[1] in PACKAGES}
    assert ours == {"LICENSE", "README.md", "pyproject.toml", *packages}
    made = {name for name in found if name not in files and not name.startswith("ddpjob.egg-info/")}
    assert made == {"PKG-INFO", "setup.cfg"}
    assert [name for name in ours if found[name].data != files[name].data] == []


def test_the_wheel_of_a_checkout_with_other_times_is_that_of_the_source_distribution(
    built: Built, tmp_path: Path
) -> None:
    unpack(tracked_files(ROOT), tmp_path / "sources")
    for path in (tmp_path / "sources").rglob("*"):
        os.utime(path, (EPOCH + 10_000, EPOCH + 10_000))
    (tmp_path / "output").mkdir()
    wheel = build_wheel(tmp_path / "sources", tmp_path / "output", EPOCH)
    assert wheel.name == built.wheel.name
    assert wheel.read_bytes() == built.wheel.read_bytes()


def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/pyproject.toml").write_text("[project]\nname = 1\n")
    with pytest.raises(StepError, match="pyproject"):
        build_sdist(tmp_path / "sources", tmp_path, EPOCH)
