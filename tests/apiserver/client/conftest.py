"""The command line in the namespace of a test, and a script for it."""

from pathlib import Path

import pytest

from tests.apiserver.client.program import Program
from tests.apiserver.controlplane import ControlPlane


@pytest.fixture
def program(control_plane: ControlPlane, namespace: str) -> Program:
    return Program(control_plane.admin_kubeconfig, namespace)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path
