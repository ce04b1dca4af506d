"""The package of the chart: the chart of the tree, with the image of the release."""

import json

import pytest
import yaml

from hack.cache import ROOT
from hack.generate.chart.templates import CHART
from hack.project import project_version
from hack.release.archives import Entry, entries_of
from hack.release.chart import chart_package
from hack.release.settings import Release
from hack.release.sources import tracked_files

RELEASE = Release(project_version(), 1_700_000_000, registry="", url="https://releases.example")
PUSHED = Release(project_version(), 1_700_000_000, registry="registry.example/team/", url="https://releases.example")


@pytest.fixture(scope="module")
def files() -> dict[str, Entry]:
    return tracked_files(ROOT)


def image_of(package: dict[str, Entry]) -> dict[str, str]:
    image: dict[str, str] = yaml.safe_load(package["ddpjob/values.yaml"].data)["image"]
    return image


def test_it_has_all_files_of_the_chart_and_the_license(files: dict[str, Entry]) -> None:
    package = entries_of(chart_package(files, RELEASE))
    chart = {f"ddpjob/{name.removeprefix(f'{CHART}/')}" for name in files if name.startswith(f"{CHART}/")}
    assert set(package) == {*chart, "ddpjob/LICENSE"}
    changed = {
        name
        for name, entry in package.items()
        if name != "ddpjob/LICENSE" and entry.data != files[f"{CHART}/{name.removeprefix('ddpjob/')}"].data
    }
    assert changed == {"ddpjob/values.yaml", "ddpjob/values.schema.json"}


@pytest.mark.parametrize(
    ("release", "repository"), [(RELEASE, "ddpjob-operator"), (PUSHED, "registry.example/team/ddpjob-operator")]
)
def test_its_default_image_is_that_of_the_release(files: dict[str, Entry], release: Release, repository: str) -> None:
    package = entries_of(chart_package(files, release))
    image = image_of(package)
    assert (image["repository"], image["tag"]) == (repository, project_version())
    shown = json.loads(package["ddpjob/values.schema.json"].data)["properties"]["image"]["properties"]
    assert (shown["repository"]["default"], shown["tag"]["default"]) == (repository, project_version())


def test_the_same_files_make_the_same_package(files: dict[str, Entry]) -> None:
    assert chart_package(files, RELEASE) == chart_package(dict(reversed(files.items())), RELEASE)


def test_a_default_that_the_chart_does_not_have_is_not_replaced_silently(files: dict[str, Entry]) -> None:
    values = f"{CHART}/values.yaml"
    other = {**files, values: Entry(files[values].data.replace(b"  tag: dev\n", b"  tag: latest\n"))}
    with pytest.raises(ValueError, match="tag: dev"):
        chart_package(other, RELEASE)
