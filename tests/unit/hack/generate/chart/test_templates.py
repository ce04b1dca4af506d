"""What of the manifests becomes a template, and what of the schema a file of values."""

import itertools
import tomllib

import pytest
import yaml

from hack.cache import ROOT
from hack.generate.chart import templates, values

CHART = ROOT / templates.CHART


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (project, project)


def test_what_helm_would_take_for_an_instruction_is_printed_as_it_is() -> None:
    assert templates._escaped("a {{ b }}") == 'a {{ "{{" }} b }}'


def test_a_part_of_a_manifest_that_a_template_replaces_must_be_there() -> None:
    assert templates._replaced("a b a", "a", "c", times=2) == "c b c"
    with pytest.raises(ValueError, match="'d' must occur 1 times in the source of a template, and does 0 times"):
        templates._replaced("a b a", "d", "c")


def test_the_chart_shows_the_alerts_and_dashboards_of_the_manifests() -> None:
    pairs = {"rules.yaml": "prometheus", "job.json": "grafana", "fleet.json": "grafana"}
    for name, folder in pairs.items():
        assert (CHART / "files" / name).read_text() == (ROOT / "manifests" / folder / name).read_text()


def test_the_file_of_values_says_of_each_what_it_means_in_lines_that_fit() -> None:
    lines = values.values_file().splitlines()
    assert max(map(len, lines)) <= 120
    for before, line in itertools.pairwise(lines):
        if line and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), line
