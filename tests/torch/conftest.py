"""Tests that need torch run inside the trainer image, against the ddpjob_trainer that is installed there:

    podman run --rm --shm-size=1g -v .:/repo:ro -v <packages>:/opt/pytest:ro -w /repo \
        -e PYTHONPATH=/opt/pytest:/repo/operator ddpjob-trainer:cpu python3 -m pytest -p no:cacheprovider tests/torch

<packages> is a folder made by `pip install --target` with what hack/checks/torch_tests.py names. `make test` does it.
"""

import errno
import importlib.util
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ddpjob_trainer.process.group import Group

# The tests share the modules in this folder, which pytest's import mode hides.
sys.path.insert(0, str(Path(__file__).parent))

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py", "*/test_*.py"]


@pytest.fixture
def group() -> "Iterator[Group]":
    """This process as the only rank."""
    from ddpjob_trainer.process.environment import parse_environment  # noqa: PLC0415 needs torch
    from ddpjob_trainer.process.group import process_group  # noqa: PLC0415 likewise

    with process_group(parse_environment({})) as group:
        yield group


@pytest.fixture(autouse=True, scope="session")
def the_default_port_is_taken() -> Iterator[None]:
    """Each run needs a port of its own: one that uses torch's default always fails, not only next to another run."""
    with socket.socket(socket.AF_INET6) as taken:
        try:
            taken.bind(("", 29500))
            taken.listen()
        except OSError as error:
            # Another worker holds it.
            if error.errno != errno.EADDRINUSE:
                raise
        yield
