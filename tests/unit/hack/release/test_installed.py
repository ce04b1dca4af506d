"""The distributions, installed into an environment that knows nothing of the checkout."""

import json
import os
import sys
from pathlib import Path

import installing
import pytest
import yaml
from installing import EPOCH, Built

from hack.cache import ROOT
from hack.project import project_version
from hack.release.archives import entries_of
from hack.release.krew import PROGRAM, plugin_archive
from hack.release.settings import Release
from hack.release.sources import tracked_files, unpack

DIGITS = ROOT / "manifests/examples/digits.yaml"
# Where modules and the files next to them come from, seen from inside.
WHERE = """
import json, pathlib, sys
from importlib.metadata import distribution
from importlib.util import find_spec
names = ("ddpjob", "ddpjob_core", "ddpjob_launcher", "ddpjob_operator", "ddpjob_trainer")
places = {name: str(pathlib.Path(find_spec(name).origin).parent) for name in names}
own = distribution("ddpjob")
missing = [str(file) for file in own.files if not pathlib.Path(own.locate_file(file)).is_file()]
print(json.dumps({"prefix": sys.prefix, "places": places, "missing": missing}))
"""
# Folders of packages that are neither Python's own nor the environment's.
OUTSIDE = """
import sys
print(*(path for path in sys.path if "site-packages" in path and not path.startswith(sys.prefix)))
"""


def installed_from(python: Path, folder: Path) -> None:
    """All packages are in the environment itself, with all of their files."""
    found = json.loads(installing.run(python, "-c", WHERE, folder=folder))
    assert found["missing"] == []
    outside = [place for place in found["places"].values() if not place.startswith(found["prefix"])]
    assert outside == []


def works(programs: Path, folder: Path) -> None:
    """The command line starts, and does without a cluster what it can."""
    assert installing.run(programs / "ddpjob", "--version", folder=folder) == f"ddpjob {project_version()}\n"
    assert "from-slurm" in installing.run(programs / PROGRAM, "--help", folder=folder)
    rendered = list(yaml.safe_load_all(installing.run(programs / "ddpjob", "render", "-f", DIGITS, folder=folder)))
    kinds = [each["kind"] for each in rendered]
    assert sorted(set(kinds)) == ["ConfigMap", "Pod", "Service"]
    assert kinds.count("Pod") == yaml.safe_load(DIGITS.read_text())["spec"]["nodes"]
    # The launcher is packed from the installed sources.
    (launcher,) = [each for each in rendered if each["kind"] == "ConfigMap"]
    assert launcher["binaryData"]


def test_the_wheel_works_where_the_checkout_is_not(built: Built, tmp_path: Path) -> None:
    venv = installing.with_packages_of_this_one(tmp_path / "venv", built.wheel)
    installed_from(venv / "bin/python", tmp_path)
    works(venv / "bin", tmp_path)


full = pytest.mark.skipif(
    os.environ.get("DDPJOB_FULL") != "1", reason="installs what the test above borrows: make test-full"
)


@full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", ["wheel", "sdist"])
def test_an_empty_environment_gets_all_that_it_needs_from_the_package_index(
    built: Built, tmp_path: Path, which: str
) -> None:
    venv = tmp_path / "venv"
    installing.run(sys.executable, "-m", "venv", venv, folder=tmp_path)
    pip = (venv / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    installing.run(*pip, "install", f"{getattr(built, which)}[cli,operator]", folder=tmp_path)
    installing.run(*pip, "check", folder=tmp_path)
    outside = installing.run(venv / "bin/python", "-c", OUTSIDE, folder=tmp_path)
    assert outside.split() == []
    installed_from(venv / "bin/python", tmp_path)
    works(venv / "bin", tmp_path)
    assert "--namespace" in installing.run(venv / "bin/python", "-m", "ddpjob_operator", "--help", folder=tmp_path)


@full
def test_wheel_and_source_distribution_are_installed_with_what_they_need_by_the_plugin_and_by_pip(
    built: Built, tmp_path: Path
) -> None:
    sdist, wheel = built
    release = Release(project_version(), EPOCH, registry="", url="https://releases.example")
    # Where krew puts it, and with a link as krew makes it, which PATH finds.
    plugin = tmp_path / "store/ddpjob" / f"v{release.version}"
    unpack(entries_of(plugin_archive(tracked_files(ROOT), wheel.name, wheel.read_bytes(), release)), plugin)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / PROGRAM).symlink_to(os.path.relpath(plugin / PROGRAM, tmp_path / "bin"))
    for _ in range(2):
        shown = installing.run(
            sys.executable, tmp_path / "bin" / PROGRAM, "--version", folder=tmp_path, XDG_CACHE_HOME=str(tmp_path)
        )
        assert shown == f"ddpjob {project_version()}\n"
    (venv,) = (path for path in (tmp_path / "ddpjob-plugin").iterdir() if path.is_dir())
    installed_from(venv / "bin/python", tmp_path)
    works(venv / "bin", tmp_path)
    pip = (venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    installing.run(*pip, "--force-reinstall", "--no-deps", sdist, folder=tmp_path)
    installed_from(venv / "bin/python", tmp_path)
    works(venv / "bin", tmp_path)
    # The plain distribution needs less than that of the command line, which is what pip asks for itself.
    installing.run(*pip, f"{sdist}[cli]", folder=tmp_path)
