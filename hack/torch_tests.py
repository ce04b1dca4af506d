"""Runs tests/torch inside the trainer's image: torch is there, and nowhere else on this machine."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cache import BUILD, ROOT, built, cache_folder, hash_of
from hack.console import run_step
from hack.engine import choose_engine
from hack.images import IMAGES, build_images
from hack.lock import SOURCE, part

_PACKAGES: Final = ("pytest", "pytest-asyncio", "pytest-timeout")
_TRAINER: Final = next(image for image in IMAGES if image.target == "trainer")


CONTAINER: Final = "ddpjob-torch-tests"


@dataclass(frozen=True)
class Run:
    """How a run of pytest in a container ended."""

    code: int
    results: Path


def pytest_folder(log: Path) -> Path:
    """A folder with pytest as it is locked, to be mounted into the container.

    All of it is plain Python, so that it does not matter which Python the image has.
    """
    lock = part(SOURCE.read_text(), _PACKAGES)

    def install(work: Path) -> None:
        requirements = work / "requirements.txt"
        requirements.write_text(lock)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        run_step("pytest for the trainer image", [*command, "--target", str(work), "-r", str(requirements)], log)

    return built(cache_folder() / "pytest" / hash_of([], lock), install)


def run_in_trainer_image(log: Path) -> Run:
    """Run the tests in a container of the trainer image, as the image's own user.

    Raises:
        StepError: the image or pytest cannot be had.
    """
    engine = choose_engine(log)
    keyed = build_images(engine, log, [_TRAINER])[_TRAINER]
    packages = pytest_folder(log)
    results = BUILD / "results/torch"
    results.mkdir(parents=True, exist_ok=True)
    (results / "torch.xml").unlink(missing_ok=True)
    # The image's user is nobody on this machine.
    results.chmod(0o777)
    command = [engine.program, "run", "--rm", "--name", f"{CONTAINER}-{os.getpid()}", "--shm-size=1g"]
    command += ["-v", f"{ROOT}:/repo:ro", "-v", f"{packages}:/opt/pytest:ro", "-v", f"{results}:/results"]
    command += ["-w", "/repo", "-e", "PYTHONPATH=/opt/pytest", "-e", "PYTHONDONTWRITEBYTECODE=1"]
    command += ["--entrypoint", "python3", keyed, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--junitxml=/results/torch.xml", "tests/torch"]
    code = subprocess.run(command, env={**os.environ, **engine.environment}, check=False).returncode
    return Run(code, results / "torch.xml")
