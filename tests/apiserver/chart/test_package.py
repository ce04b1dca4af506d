"""The package of the chart that a release has, as both versions of Helm read it."""

from pathlib import Path

import pytest
import yaml

from hack.project import project_version
from hack.release.chart import chart_package
from hack.release.settings import Release
from hack.release.sources import tracked_files
from tests.apiserver.chart.helm import Helm, comparable, loaded
from tests.apiserver.controlplane import NAMESPACE, ROOT

RELEASE = Release(project_version(), 1_700_000_000, registry="registry.example/team", url="https://releases.example")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "chart.tgz"
    path.write_bytes(chart_package(tracked_files(ROOT), RELEASE))
    return path


def test_helm_shows_the_version_of_the_project(helm: Helm, package: Path) -> None:
    shown = yaml.safe_load(helm.run("show", "chart", str(package)))
    assert (shown["name"], shown["version"], shown["appVersion"]) == ("ddpjob", RELEASE.version, RELEASE.version)


def test_it_makes_the_objects_of_the_chart_with_the_image_of_the_release(helm: Helm, package: Path) -> None:
    made = loaded(helm.run("template", "ddpjob", str(package), "--namespace", NAMESPACE))
    image = {"repository": RELEASE.operator_image, "tag": RELEASE.version}
    assert comparable(made) == comparable(helm.render({"image": image}))


def test_it_passes_the_strict_linter(helm: Helm, package: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(package))
