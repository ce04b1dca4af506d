"""Tests of scale run against a control plane of their own."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder with Kubernetes' programs."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    assert folder, "KUBEBUILDER_ASSETS names no folder with Kubernetes' programs: make test-full builds them"
    return Path(folder)
