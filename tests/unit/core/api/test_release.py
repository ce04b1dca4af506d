import tomllib
from pathlib import Path

from ddpjob_core.api.release import RELEASE


def test_the_release_is_that_of_the_distribution() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    assert project["project"]["version"] == RELEASE
