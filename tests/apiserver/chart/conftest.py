"""Both versions of Helm."""

import os
from pathlib import Path

import pytest

from tests.apiserver.chart.helm import Helm


@pytest.fixture(scope="session")
def helm_programs() -> dict[str, Path]:
    """The programs that there are, by name."""
    programs = [Path(program) for program in os.environ.get("DDPJOB_HELM", "").split(os.pathsep) if program]
    return {program.name: program for program in programs}


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, helm_programs: dict[str, Path], tmp_path: Path) -> Helm:
    program = helm_programs.get(request.param)
    if program is None:
        pytest.skip(f"DDPJOB_HELM does not name a {request.param}: make test builds helm4, make test-full both")
    return Helm(program, tmp_path / "helm")
