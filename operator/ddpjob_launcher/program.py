"""The program to run, and what all its workers on this node have in common."""

# ruff: noqa: PTH109, PTH116, PTH118 -- plain paths go into the environment

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from .cgroup import omp_threads
from .errors import CannotStart
from .interface import set_gloo_interface

if TYPE_CHECKING:
    from .settings import Settings


def check_program(kind: str, program: str) -> None:
    """Fail before the other nodes are waited for, if the program does not exist."""
    if kind == "script":
        try:
            os.stat(program)
        except PermissionError as error:
            raise CannotStart(
                f"script {program} cannot be read by user {os.geteuid()}: {error.strerror}: "
                "check spec.trainer.script, and which user the pod runs as"
            ) from error
        except (OSError, ValueError) as error:
            raise CannotStart(
                f"script {program} not found in {os.getcwd()}: "
                "check spec.trainer.script, workingDir, image and volumeMounts"
            ) from error
        return
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(program.partition(".")[0]) is not None
    except (ImportError, ValueError):
        found = True
    finally:
        del sys.path[0]
    if not found:
        raise CannotStart(f"no module named {program}: check spec.trainer.module, image and workingDir")


def prepare_environment(settings: Settings, processes: int, folder: str) -> None:
    """Put into the environment what all workers of this node have in common."""
    os.environ.setdefault("DDPJOB_PROGRESS_FILE", os.path.join(folder, "progress.json"))
    if settings.host_network:
        set_gloo_interface()
    threads = omp_threads(processes)
    if threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
