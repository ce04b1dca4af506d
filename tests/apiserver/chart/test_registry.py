"""The chart in a registry, next to the image."""

import json
from pathlib import Path

import yaml

from tests.apiserver.chart.helm import CHART, Helm, loaded
from tests.apiserver.chart.registry import serving

VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]


def test_a_chart_that_is_pushed_to_a_registry_is_pulled_as_it_was(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    with serving() as registry:
        place = f"oci://{registry.host}/team/charts"
        helm.run("push", str(tmp_path / f"ddpjob-{VERSION}.tgz"), place, "--plain-http")
        options = ("--version", VERSION, "--plain-http", "--namespace", "ddpjob-system")
        text = helm.run("template", "ddpjob", f"{place}/ddpjob", *options)
    assert loaded(text) == helm.render({})
    manifest = json.loads(registry.manifests["team/charts/ddpjob", VERSION][1])
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
