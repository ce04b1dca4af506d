"""Tests that need torch run inside the trainer image, against the ddpjob_trainer that is installed there:

    podman run --rm --shm-size=1g -v .:/repo:ro -v <pytest>:/opt/pytest:ro -e PYTHONPATH=/opt/pytest -w /repo \
        ddpjob-trainer:cpu python3 -m pytest -p no:cacheprovider tests/torch

<pytest> is a folder made by `pip install --target` with pytest, pytest-asyncio and pytest-timeout. `make test` does it.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

# The tests share the module beside them, which pytest's import mode hides.
sys.path.insert(0, str(Path(__file__).parent))

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def programs() -> Path:
    """Folder of the small programs that the tests start under torchrun."""
    return Path(__file__).with_name("programs")
