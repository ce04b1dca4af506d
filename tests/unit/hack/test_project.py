"""The version is written once, and everything that has one follows it."""

from pathlib import Path

import pytest

from hack.cache import ROOT
from hack.generate.chart.about import with_versions
from hack.project import project_version
from hack.release.sources import tracked_files

CHART = "name: a\nversion: 0.1.0\nappVersion: 0.1.0\nkubeVersion: 1.31\n"
# Written there once, and made from that by hack/generate; what has changed in it is said by hand.
WRITTEN_IN = {"pyproject.toml", "manifests/chart/ddpjob/Chart.yaml", "CHANGELOG.md"}
READ = (".md", ".yaml", ".yml", ".toml", ".tpl", ".json", "Dockerfile", "Makefile")


@pytest.mark.parametrize("version", ["1", "1.2", "1.2.3.4", "01.2.3", "1.2.3rc1", "v1.2.3", "1.2.x"])
def test_a_version_that_helm_and_pip_write_differently_is_refused(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    with pytest.raises(ValueError, match="three numbers"):
        project_version(tmp_path)


def test_the_chart_gets_the_version_in_both_places_and_keeps_the_rest() -> None:
    assert with_versions(CHART, "2.0.1") == "name: a\nversion: 2.0.1\nappVersion: 2.0.1\nkubeVersion: 1.31\n"


@pytest.mark.parametrize("text", ["version: 1\n", "name: a\nversion: 1\nversion: 2\n", "a: 1\nappVersion: 1\n"])
def test_a_chart_without_exactly_one_place_for_each_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must have one line"):
        with_versions(text, "2.0.1")


def test_no_other_file_repeats_the_version_of_the_project() -> None:
    version = project_version().encode()
    names = {
        name
        for name, entry in tracked_files(ROOT).items()
        if name.endswith(READ) and not name.startswith("tests/") and version in entry.data
    }
    assert names <= WRITTEN_IN
