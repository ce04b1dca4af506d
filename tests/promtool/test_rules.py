"""What promtool says of the committed rules and configuration, in the image that has it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cache import ROOT
from hack.checks.promtool import Promtool

FOLDER = Path(__file__).parent
ADAPTER = ROOT / "manifests/prometheus/adapter.yaml"
RULES = ROOT / "manifests/prometheus/rules.yaml"
Json = dict[str, Any]
FILES = sorted(FOLDER.glob("*.yaml"))

pytestmark = pytest.mark.timeout(600)


def test_configuration_and_rules_are_sound(promtool: Promtool, tmp_path: Path) -> None:
    code, said = promtool("check", "config", "manifests/prometheus/prometheus.yaml", work=tmp_path)
    assert code == 0, said
    assert "13 rules found" in said


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


def test_a_job_needs_the_nodes_with_which_it_is_done_in_time(promtool: Promtool, tmp_path: Path) -> None:
    (rule,) = yaml.safe_load(ADAPTER.read_text())["rules"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "ddpjob")
    gauge = "ddpjob_operator_job_"
    # Two nodes make a tenth of a step in a second, which is 6 in each minute of the 10 hours.
    series = {
        f"{gauge}planned_steps": "5400x600",
        f"{gauge}step": "0+6x600",
        f"{gauge}start_timestamp_seconds": "0x600",
        f'{gauge}nodes{{state="ready"}}': "2x600",
        f'{gauge}nodes{{state="desired"}}': "3x600",
    }
    jobs = {"digits": series, "other": {**series, f"{gauge}planned_steps": "9e9x600"}}
    jobs["stuck"] = {**series, f"{gauge}step": "7x600"}

    def labelled(name: str, job: str) -> str:
        metric, _, more = name.rstrip("}").partition("{")
        return f'{metric}{{namespace="team",ddpjob="{job}",instance="a"{"," if more else ""}{more}}}'

    def needs(job: str, at: str, *nodes: float) -> Json:
        matchers = f'namespace="team",ddpjob="{job}"'
        samples = [{"labels": f'{{ddpjob="{job}"}}', "value": each} for each in nodes]
        return {"expr": query.replace("<<.LabelMatchers>>", matchers), "eval_time": at, "exp_samples": samples}

    test = {
        "interval": "1m",
        "input_series": [
            {"series": labelled(name, job), "values": values}
            for job, each in jobs.items()
            for name, values in each.items()
        ],
        "promql_expr_test": [
            # 5,040 steps in 7 hours, at a twentieth of a step per second and node.
            needs("digits", "1h", 4),
            # Too few for too long: ever more are needed, at last those with which it would be done in a minute.
            needs("digits", "6h", 9),
            needs("digits", "9h", 720),
            needs("stuck", "1h"),
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    tmp_path.chmod(0o755)
    code, said = promtool("test", "rules", "/work/test.yaml", work=tmp_path)
    assert code == 0, said


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    tests = [test for file in FILES for test in yaml.safe_load(file.read_text())["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts
