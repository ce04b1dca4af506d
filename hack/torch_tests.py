"""Runs tests/torch inside the trainer's image: torch is there, and nowhere else on this machine."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cache import BUILD, ROOT, built, cache_folder, hash_of
from hack.console import StepError, run_step
from hack.engine import choose_engine
from hack.images import IMAGES, build_images
from hack.lock import SOURCE, part
from hack.side_by_side import side_by_side

# pytest, and what a run without a cluster needs beside the image's torch.
_PACKAGES: Final = (
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "aiohttp",
    "prometheus-client",
    "psutil",
    "pydantic",
    "pyyaml",
)
_ASK_PYTHON: Final = "import platform, sys; print(*sys.version_info[:2], sep='.', end=' '); print(platform.machine())"
# Wheels name the oldest C library that they run with.
_GLIBC: Final = ("2_28", "2_17")
# A third of such a test is waiting.
_SIDE_BY_SIDE: Final = side_by_side(more=1)
TRAINER: Final = next(image for image in IMAGES if image.target == "trainer")


CONTAINER: Final = "ddpjob-torch-tests"


@dataclass(frozen=True)
class Run:
    """How a run of pytest in a container ended."""

    code: int
    results: Path


def packages_folder(log: Path, python: str, machine: str) -> Path:
    """A folder with the packages as they are locked, to be mounted into the container.

    Args:
        log: for what pip says.
        python: version of the image's Python, as 3.13.
        machine: its architecture, as x86_64.
    """
    lock = part(SOURCE.read_text(), _PACKAGES)
    platforms = [f"--platform=manylinux_{version}_{machine}" for version in _GLIBC]
    target = ["--only-binary=:all:", f"--python-version={python}", *platforms]

    def install(work: Path) -> None:
        requirements = work / "requirements.txt"
        requirements.write_text(lock)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        run_step(
            "packages for tests in the trainer image",
            [*command, *target, "--target", str(work), "-r", str(requirements)],
            log,
        )

    return built(cache_folder() / "pytest" / hash_of([], lock, python, machine), install)


def run_in_trainer_image(log: Path) -> Run:
    """Run the tests in a container of the trainer image, as the image's own user.

    Raises:
        StepError: the image or pytest cannot be had.
    """
    engine = choose_engine(log)
    keyed = build_images(engine, log, [TRAINER])[TRAINER]
    asked = engine.output("run", "--rm", keyed, "python3", "-c", _ASK_PYTHON)
    if asked is None:
        raise StepError("the trainer image does not run its python3")
    python, machine = asked.split()
    packages = packages_folder(log, python, machine)
    results = BUILD / "results/torch"
    results.mkdir(parents=True, exist_ok=True)
    (results / "torch.xml").unlink(missing_ok=True)
    # The image's user is nobody on this machine.
    results.chmod(0o777)
    command = [engine.program, "run", "--rm", "--name", f"{CONTAINER}-{os.getpid()}", "--shm-size=1g"]
    command += ["-v", f"{ROOT}:/repo:ro", "-v", f"{packages}:/opt/pytest:ro", "-v", f"{results}:/results"]
    command += ["-w", "/repo", "-e", "PYTHONPATH=/opt/pytest:/repo/operator", "-e", "PYTHONDONTWRITEBYTECODE=1"]
    command += ["--entrypoint", "python3", keyed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_SIDE_BY_SIDE]
    command += ["--junitxml=/results/torch.xml", "tests/torch"]
    code = subprocess.run(command, env={**os.environ, **engine.environment}, check=False).returncode
    return Run(code, results / "torch.xml")
