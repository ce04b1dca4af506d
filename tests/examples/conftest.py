"""Tests of the examples that need torchvision or transformers run inside the image of the examples, as those of
tests/torch do inside the trainer's. `make test` does it.
"""

import importlib.util
import sys
from pathlib import Path

# What starts trainings is the same, and pytest's import mode hides it.
sys.path.insert(0, str(Path(__file__).parents[1] / "torch"))

import forked

forked.LOADED += ["torchvision.models", "torchvision.datasets", "transformers.trainer"]

if importlib.util.find_spec("transformers") is None:
    collect_ignore_glob = ["test_*.py"]
