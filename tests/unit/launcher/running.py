"""The launcher as a pod would run it, by the plain interpreter."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ddpjob_launcher.archive import archive
from ddpjob_launcher.settings import Settings, read_settings

ENVIRONMENT = {
    "DDPJOB_NAME": "digits",
    "DDPJOB_NAMESPACE": "ml",
    "DDPJOB_ATTEMPT": "0",
    "DDPJOB_NODE_RANK": "0",
    "DDPJOB_NODES": "2",
    "DDPJOB_LAUNCHER": "torchrun",
    "DDPJOB_LAUNCHER_MODULE": "torchrun",
    "DDPJOB_PROGRAM_KIND": "script",
    "DDPJOB_PROGRAM": "train.py",
    "DDPJOB_METRICS_PORT": "9401",
    "DDPJOB_GRACE_PERIOD_SECONDS": "30",
    "DDPJOB_RENDEZVOUS_HOST": "digits-a0-0.digits",
    "DDPJOB_RENDEZVOUS_PORT": "29500",
    "DDPJOB_RENDEZVOUS_TIMEOUT": "600",
}


def settings_of(**changed: str) -> Settings:
    return read_settings({**ENVIRONMENT, **changed})


def packed(folder: Path, module: str = "torchrun") -> Path:
    file = folder / "launcher.pyz"
    file.write_bytes(archive(module))
    return file


def run(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-u", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def worker(launcher: Path, kind: str, program: str, *arguments: str) -> list[str]:
    return [str(launcher), "--ddpjob-run", "worker", "yes", kind, program, *arguments]


def files_of(monkeypatch: pytest.MonkeyPatch, module: ModuleType, files: dict[str, str]) -> None:
    """Let a module find these files, and no others."""

    def read(path: str, **_: object) -> io.StringIO:
        if path not in files:
            raise FileNotFoundError(path)
        return io.StringIO(files[path])

    monkeypatch.setitem(vars(module), "open", read)
