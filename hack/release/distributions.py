"""The wheel and the source distribution, by the build backend that pyproject.toml names."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack.console import StepError
from hack.images.build import EPOCH_VARIABLE
from hack.release.archives import entries_of, packed

_UMASK: Final = 0o022


def build_sdist(sources: Path, output: Path, epoch: int) -> Path:
    """Build the source distribution; the sources should be a copy, in which the backend leaves files of its own.

    Args:
        sources: folder with pyproject.toml.
        output: folder for the result.
        epoch: time of last change of all files, in seconds since 1970.

    Raises:
        StepError: the build failed.
    """
    path = _build("--sdist", sources, output, epoch, "*.tar.gz")
    # The backend packs users, modes and times as it finds them.
    path.write_bytes(packed(entries_of(path.read_bytes()), epoch))
    return path


def build_wheel(source: Path, output: Path, epoch: int) -> Path:
    """Build the wheel.

    Args:
        source: a source distribution, or a copy of the sources.
        output: folder for the result.
        epoch: time of last change of all files, in seconds since 1970.

    Raises:
        StepError: the build failed.
    """
    return _build("--wheel", source, output, epoch, "*.whl")


def _build(kind: str, source: Path, output: Path, epoch: int, pattern: str) -> Path:
    environment = {**os.environ, EPOCH_VARIABLE: str(epoch), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    # The backend of requirements.lock, not the newest one: without isolation, and so without a package index.
    command = [str(Path(sys.executable).with_name("uv")), "build", kind, "--no-build-isolation", "--offline"]
    # uv adds files of its own to the folder that it builds into.
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as work:
        command += ["--python", sys.executable, "--out-dir", work, str(source)]
        try:
            done = subprocess.run(command, env=environment, umask=_UMASK, capture_output=True, text=True, check=False)
        except OSError as error:
            raise StepError(f"{command[0]} cannot be started: {error.strerror}") from error
        if done.returncode != 0:
            raise StepError(f"uv build {kind} failed:\n{done.stdout}{done.stderr}")
        (made,) = Path(work).glob(pattern)
        return made.rename(output / made.name)
