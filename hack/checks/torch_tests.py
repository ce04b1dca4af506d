"""Runs tests/torch inside the trainer's image: torch is there, and nowhere else on this machine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cache import BUILD, ROOT, built, cache_folder, hash_of, only_one
from hack.checks.side_by_side import side_by_side
from hack.cluster.engine import Engine, choose_engine
from hack.console import StepError, run_step, say
from hack.images.build import build_images
from hack.images.image import IMAGES, Image

_PACKAGES: Final = ROOT / "tests/torch/requirements.lock"
# What only full runs of tests/torch need, such as a server of S3's protocol: some hundred megabytes.
_FULL_PACKAGES: Final = ROOT / "tests/torch/requirements-full.lock"
_ASK_PYTHON: Final = "import platform, sys; print(*sys.version_info[:2], sep='.', end=' '); print(platform.machine())"
# Wheels name the oldest C library that they run with.
_GLIBC: Final = ("2_28", "2_17")
# A third of such a test is waiting.
_SIDE_BY_SIDE: Final = side_by_side(more=1)
# What the trainer image has from Debian. Its own torch is the oldest that is supported; this is the other end.
_NEWEST: Final = ("torch", "numpy", "safetensors", "prometheus-client")
_TORCH: Final = "/opt/torch"
_MORE: Final = "/opt/more"
_FREE_GIB: Final = 25
TRAINER: Final = next(image for image in IMAGES if image.target == "trainer")


CONTAINER: Final = "ddpjob-torch-tests"
# A container has 1,024 of these where it does not say.
_SPARE: Final = "--cpu-shares=512"


@dataclass(frozen=True)
class Run:
    """How a run of pytest in a container ended."""

    code: int
    results: Path


def packages_folder(lock: Path, log: Path, python: str, machine: str) -> Path:
    """A folder with the packages as they are locked, to be mounted into the container.

    Args:
        lock: requirements with hashes.
        log: for what pip says.
        python: version of the image's Python, as 3.13.
        machine: its architecture, as x86_64.
    """
    platforms = [f"--platform=manylinux_{version}_{machine}" for version in _GLIBC]
    target = ["--only-binary=:all:", f"--python-version={python}", *platforms]

    def install(work: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        run_step(
            "packages for tests in the trainer image",
            [*command, *target, "--target", str(work), "-r", str(lock)],
            log,
        )

    return built(cache_folder() / "pytest" / hash_of([lock], python, machine), install)


@contextmanager
def newest_torch(log: Path, python: str, machine: str) -> Iterator[Path]:
    """A folder with the newest torch and what else the library needs, removed afterwards: it has 5 GB and more.

    Args:
        log: for what uv says.
        python: version of the image's Python, as 3.13.
        machine: its architecture, as x86_64.

    Raises:
        StepError: there is no room for it, or it cannot be had.
    """
    base = cache_folder()
    base.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(base).free >> 30
    if free < _FREE_GIB:
        raise StepError(f"the newest torch needs {_FREE_GIB} GiB in {base}, which has {free} GiB free")
    folder = Path(tempfile.mkdtemp(prefix=".torch.", dir=base))
    folder.chmod(0o755)
    try:
        # pip cannot resolve for another Python than its own.
        uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--no-cache"]
        target = ["--python-version", python, "--python-platform", f"{machine}-manylinux_2_28", "--target", str(folder)]
        run_step("the newest torch (5 GB)", [*uv, "--only-binary", ":all:", *target, *_NEWEST], log)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Container:
    """Where tests that need torch run."""

    engine: Engine
    image: str
    python: str
    """Version of its Python, such as 3.13."""
    machine: str
    """Its architecture, such as x86_64."""
    packages: Path
    more: Path | None = None
    """Packages that only full runs need."""

    def pytest(self, name: str, tests: Sequence[str], torch: Path | None = None, *, spare: bool = False) -> Run:
        """Run tests as the image's own user.

        Args:
            name: of the file with the results.
            tests: files and folders, and options.
            torch: folder of another torch than the image's.
            spare: whether other containers get more of the time than it does.
        """
        results = BUILD / "results/torch"
        results.mkdir(parents=True, exist_ok=True)
        (results / f"{name}.xml").unlink(missing_ok=True)
        # The image's user is nobody on this machine.
        results.chmod(0o777)
        path = ["/opt/pytest", "/repo/operator"]
        command = [self.engine.program, "run", "--rm", "--name", f"{CONTAINER}-{os.getpid()}", "--shm-size=1g"]
        command += ["-v", f"{ROOT}:/repo:ro", "-v", f"{self.packages}:/opt/pytest:ro", "-v", f"{results}:/results"]
        if spare:
            command.append(_SPARE)
        # Each of pytest's processes loads what the tests of the examples need, which takes longer than they do.
        workers = () if spare else _SIDE_BY_SIDE
        if torch is not None:
            command += ["-v", f"{torch}:{_TORCH}:ro"]
            path.insert(0, _TORCH)
        if self.more is not None:
            command += ["-v", f"{self.more}:{_MORE}:ro"]
            path.append(_MORE)
        command += ["-w", "/repo", "-e", f"PYTHONPATH={':'.join(path)}", "-e", "PYTHONDONTWRITEBYTECODE=1"]
        command += ["--entrypoint", "python3", self.image, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [*workers, f"--junitxml=/results/{name}.xml", *tests]
        code = subprocess.run(command, env={**os.environ, **self.engine.environment}, check=False).returncode
        return Run(code, results / f"{name}.xml")


def container_of(image: Image, log: Path, *, full: bool = False) -> Container:
    """An image that has torch, with pytest.

    Args:
        image: with torch.
        log: for what the build says.
        full: whether it also has what only full runs of tests/torch need.

    Raises:
        StepError: the image or pytest cannot be had.
    """
    with only_one(f"image {image.name}", say):
        return _container_of(image, log, full=full)


def _container_of(image: Image, log: Path, *, full: bool) -> Container:
    engine = choose_engine(log)
    keyed = build_images(engine, log, [image])[image]
    asked = engine.output("run", "--rm", keyed, "python3", "-c", _ASK_PYTHON)
    if asked is None:
        raise StepError(f"the image {image.name} cannot run its python3")
    python, machine = asked.split()
    more = packages_folder(_FULL_PACKAGES, log, python, machine) if full else None
    return Container(engine, keyed, python, machine, packages_folder(_PACKAGES, log, python, machine), more)


def run_in_image(image: Image, name: str, log: Path, *, full: bool, spare: bool = False) -> Run:
    """Run the tests of a folder of tests/ with the torch of an image.

    Args:
        image: with torch.
        name: of the folder.
        log: for what the build says.
        full: whether those marked `full` run too.
        spare: whether other containers get more of the time than they do.

    Raises:
        StepError: the image or pytest cannot be had.
    """
    chosen = [] if full else ["-m", "not full"]
    return container_of(image, log, full=full and image is TRAINER).pytest(
        name, [*chosen, f"tests/{name}"], spare=spare
    )


def run_with_newest_torch(log: Path) -> Run:
    """Run the library's own tests with the newest torch that there is.

    Raises:
        StepError: the image, pytest or that torch cannot be had.
    """
    container = container_of(TRAINER, log, full=True)
    with newest_torch(log, container.python, container.machine) as torch:
        version = next(torch.glob("torch-*.dist-info")).name.removesuffix(".dist-info")
        say(f"  {version} instead of the image's")
        return container.pytest("torch-newest", ["tests/torch/trainer"], torch)
