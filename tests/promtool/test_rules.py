"""What promtool says of the committed rules and configuration, in the image that has it."""

from pathlib import Path

import pytest
import yaml

from hack.cache import BUILD, ROOT
from hack.checks.promtool import Promtool, promtool_in_image

FOLDER = Path(__file__).parent
RULES = ROOT / "manifests/prometheus/rules.yaml"
FILES = sorted(FOLDER.glob("*.yaml"))

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    return promtool_in_image(BUILD / "log/promtool.log")


def test_configuration_and_rules_are_sound(promtool: Promtool, tmp_path: Path) -> None:
    code, said = promtool("check", "config", "manifests/prometheus/prometheus.yaml", work=tmp_path)
    assert code == 0, said
    assert "12 rules found" in said


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_alert_fires_when_it_should_and_at_no_other_time(promtool: Promtool, tmp_path: Path, file: Path) -> None:
    code, said = promtool("test", "rules", f"tests/promtool/{file.name}", work=tmp_path)
    assert code == 0, said
    assert "SUCCESS" in said


def test_a_rule_that_never_fires_is_found(promtool: Promtool, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    dead = RULES.read_text().replace("== 1", "== 2").replace(">", "> 1e9 +")
    (tmp_path / "rules.yaml").write_text(dead)
    for file in FILES:
        (tmp_path / file.name).write_text(file.read_text().replace("../../manifests/prometheus/", ""))
    code, said = promtool("test", "rules", *(f"/work/{file.name}" for file in FILES), work=tmp_path)
    assert code != 0
    assert said.count("FAILED") == len(FILES), said


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    tests = [test for file in FILES for test in yaml.safe_load(file.read_text())["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts
