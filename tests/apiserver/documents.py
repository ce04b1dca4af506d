"""Objects that the documentation shows."""

import re
from pathlib import Path

import yaml

from tests.apiserver.controlplane import Json


def objects_of(page: Path) -> list[Json]:
    """The objects in the YAML blocks of a page."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    return [each for block in blocks for each in yaml.safe_load_all(block)]
