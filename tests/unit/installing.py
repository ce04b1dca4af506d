"""Environments into which the distributions are installed, as users have them."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from hack.cache import ROOT
from hack.release.distributions import build_sdist, build_wheel
from hack.release.sources import tracked_files, unpack

EPOCH = 1_700_000_000


class Built(NamedTuple):
    """The source distribution, and the wheel that is built from it."""

    sdist: Path
    wheel: Path


def build(sources: Path, output: Path) -> Built:
    """Build both from a copy of the checkout."""
    output.mkdir()
    unpack(tracked_files(ROOT), sources)
    sdist = build_sdist(sources, output, EPOCH)
    return Built(sdist, build_wheel(sdist, output, EPOCH))


def environment(**variables: str) -> dict[str, str]:
    """The variables of this process, without those by which Python would find the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """What a program prints, started in a folder that is not the checkout."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def with_packages_of_this_one(folder: Path, wheel: Path) -> Path:
    """A virtual environment with the wheel, which finds other packages where this process does.

    What this environment has of ddpjob itself, it has by a .pth file, which another environment does not read.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages-of-this-one.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder
