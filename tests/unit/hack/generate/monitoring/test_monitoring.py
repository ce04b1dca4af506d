"""Dashboards, rules and the page of metrics fit each other and what operator and trainer really expose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from hack.cache import ROOT
from hack.generate.monitoring.metrics_page import Row, metrics_page, operator_text, rows, trainer_text

DASHBOARDS = sorted((ROOT / "manifests/grafana").glob("*.json"))
PROMETHEUS = ROOT / "manifests/prometheus"
OVERLAY = ROOT / "manifests/overlays/prometheus-operator"
METRIC = re.compile(r"\b((?:ddpjob_(?:operator|trainer)|process)_\w+)")


def name_of(path: Path) -> str:
    return path.stem


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row"]


def expressions(path: Path) -> list[str]:
    """Every query of a dashboard: of panels, annotations and variables."""
    dashboard = json.loads(path.read_text())
    found = [target["expr"] for panel in panels(path) for target in panel["targets"]]
    found += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    return [*found, *(variable["query"] for variable in dashboard["templating"]["list"])]


def exposed() -> dict[str, Row]:
    """Every series' name that a query may use, with its metric."""
    names: dict[str, Row] = {}
    for row in (*rows(operator_text()), *rows(trainer_text())):
        suffixes = ("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",)
        names |= {f"{row.name}{suffix}": row for suffix in suffixes}
    return names


def unknown(expression: str) -> set[str]:
    known = {*exposed(), "process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds"}
    return set(METRIC.findall(expression)) - known


@pytest.mark.parametrize("path", DASHBOARDS, ids=name_of)
def test_every_panel_has_a_title_a_description_a_unit_and_a_query(path: Path) -> None:
    found = panels(path)
    assert len(found) > 15
    for panel in found:
        assert panel["title"]
        assert len(panel["description"]) > 15, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"]), panel["title"]
    titles = [panel["title"] for panel in found]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("path", DASHBOARDS, ids=name_of)
def test_grafanas_schema_keeps_every_field_of_a_dashboard(path: Path) -> None:
    register_default_plugins()
    written = json.loads(path.read_text())
    read = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
    assert read == written
    misspelt = {**written, "panels": [{**written["panels"][1], "titel": "x"}]}
    assert json.loads(json.dumps(Dashboard.from_json(misspelt), cls=JSONEncoder)) != misspelt


@pytest.mark.parametrize("path", DASHBOARDS, ids=name_of)
def test_panels_do_not_overlap_and_stay_within_the_width(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=name_of)
def test_a_dashboard_asks_for_namespace_and_job_and_names_no_data_source(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "namespace", "ddpjob"]
    sources = re.findall(r'"uid": "([^"]+)"', path.read_text())
    assert set(sources) == {"${datasource}", dashboard["uid"]}


@pytest.mark.parametrize("path", DASHBOARDS, ids=name_of)
def test_queries_use_metrics_that_are_exposed(path: Path) -> None:
    assert {expression: unknown(expression) for expression in expressions(path) if unknown(expression)} == {}


def test_a_metric_that_is_not_exposed_is_found() -> None:
    assert unknown("rate(ddpjob_trainer_stepz_total[5m])") == {"ddpjob_trainer_stepz_total"}


def test_the_autoscaled_example_follows_the_metric_that_the_adapters_rule_makes_of_exposed_ones() -> None:
    (rule,) = yaml.safe_load((PROMETHEUS / "adapter.yaml").read_text())["rules"]
    queries = rule["seriesQuery"], rule["metricsQuery"]
    assert [unknown(query) for query in queries] == [set(), set()]
    example = (ROOT / "manifests/examples/autoscaled.yaml").read_text()
    job, autoscaler = (each for each in yaml.safe_load_all(example))
    target = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": job["metadata"]["name"]}
    (metric,) = (each["object"] for each in autoscaler["spec"]["metrics"])
    assert autoscaler["spec"]["scaleTargetRef"] == metric["describedObject"] == target
    assert metric["metric"] == {"name": rule["name"]["as"]}
    limits = {"minNodes": autoscaler["spec"]["minReplicas"], "maxNodes": autoscaler["spec"]["maxReplicas"]}
    assert job["spec"]["elastic"] == limits


def test_no_rule_uses_a_metric_that_is_not_exposed_and_each_has_its_page() -> None:
    rules = [
        rule for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"] for rule in group["rules"]
    ]
    assert len(rules) > 5
    for rule in rules:
        assert not unknown(rule["expr"]), rule["alert"]
        page = ROOT / rule["annotations"]["runbook_url"]
        assert rule["alert"] in page.read_text().splitlines()[0], page
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs/runbooks").glob("*.md")}
    assert {rule["annotations"]["runbook_url"] for rule in rules} == pages


def test_the_prometheus_operators_rules_are_the_plain_ones() -> None:
    plain = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())
    assert yaml.safe_load((OVERLAY / "rules.yaml").read_text())["spec"] == plain


def snake(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", key): snake(each) for key, each in value.items()
        }
    return [snake(each) for each in value] if isinstance(value, list) else value


def test_pod_monitors_relabel_as_the_plain_configuration_does() -> None:
    plain = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())["scrape_configs"]
    monitors = list(yaml.safe_load_all((OVERLAY / "pod-monitors.yaml").read_text()))
    assert [monitor["metadata"]["name"] for monitor in monitors] == [scrape["job_name"] for scrape in plain]
    for monitor, scrape in zip(monitors, plain, strict=True):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (selector,) = scrape["kubernetes_sd_configs"][0]["selectors"]
        wanted = [f"{name}={value}" for name, value in monitor["spec"]["selector"]["matchLabels"].items()]
        assert wanted == [selector["label"]]
        assert endpoint.get("honorLabels", False) == scrape.get("honor_labels", False)
        assert snake(endpoint.get("metricRelabelings", [])) == scrape.get("metric_relabel_configs", [])
        rules = snake(endpoint["relabelings"])
        if "port" in endpoint:
            port = {
                "source_labels": ["__meta_kubernetes_pod_container_port_name"],
                "action": "keep",
                "regex": endpoint["port"],
            }
            rules = [port, *rules]
        # What the Prometheus operator writes by itself.
        own = [
            rule
            for rule in scrape["relabel_configs"]
            if rule.get("target_label") not in ("namespace", "pod") and rule.get("action") != "drop"
        ]
        assert rules == own


OF_LABELS = {"label_limit": 50, "label_name_length_limit": 200, "label_value_length_limit": 1000}


@pytest.mark.parametrize(
    ("scraped", "limits"),
    [
        ("ddpjob-trainer", {"sample_limit": 5000, "body_size_limit": "4MB", **OF_LABELS}),
        ("ddpjob-operator", {"sample_limit": 500_000, "body_size_limit": "100MB", **OF_LABELS}),
    ],
)
def test_what_can_be_written_into_prometheus_is_limited_everywhere_alike(scraped: str, limits: dict[str, Any]) -> None:
    plain = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())["scrape_configs"]
    (scrape,) = [each for each in plain if each["job_name"] == scraped]
    assert {name: value for name, value in scrape.items() if name.endswith("_limit")} == limits
    monitors = list(yaml.safe_load_all((OVERLAY / "pod-monitors.yaml").read_text()))
    (monitor,) = [each["spec"] for each in monitors if each["metadata"]["name"] == scraped]
    assert snake({name: value for name, value in monitor.items() if name.endswith("Limit")}) == limits


def test_the_operator_has_room_for_the_series_of_30000_jobs() -> None:
    lines = [line for line in operator_text().splitlines() if line.startswith("ddpjob_operator_job_")]
    longest_names = len("n" * 63 + "j" * 52)
    assert len(lines) >= 12
    # One more while a rank is slow, and what is not of a job.
    assert 30_000 * (len(lines) + 1) + 10_000 <= 500_000
    assert 30_000 * sum(len(line) + longest_names for line in lines) <= 100 * 1024**2


def test_the_operator_whose_labels_count_is_looked_for_in_its_own_namespace_alone() -> None:
    scrapes = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())["scrape_configs"]
    (honoured,) = [scrape for scrape in scrapes if scrape.get("honor_labels")]
    (discovery,) = honoured["kubernetes_sd_configs"]
    assert discovery["namespaces"] == {"names": ["ddpjob-system"]}
    monitors = list(yaml.safe_load_all((OVERLAY / "pod-monitors.yaml").read_text()))
    (monitor,) = [each for each in monitors if each["spec"]["podMetricsEndpoints"][0].get("honorLabels")]
    # Without one, that of the monitor.
    assert "namespaceSelector" not in monitor["spec"]
    assert yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())["namespace"] == "ddpjob-system"


def test_the_page_has_every_metric_once_with_its_labels() -> None:
    lines = re.findall(r"^\| `(\S+)` \| (counter|gauge|histogram) \| (.*?) \|", metrics_page(), re.MULTILINE)
    names = [name for name, _, _ in lines]
    assert len(set(names)) == len(names)
    labels = {name: set(re.findall(r"`(\w+)`", text)) for name, _, text in lines}
    assert labels["ddpjob_operator_api_requests_total"] == {"verb", "resource", "code"}
    assert labels["ddpjob_operator_job_stalled"] == {"namespace", "ddpjob"}
    trainers = {name: found for name, found in labels.items() if name.startswith("ddpjob_trainer_")}
    assert all(found >= {"ddpjob", "rank"} for found in trainers.values())
    # Names of jobs are on what is made from the cache alone, never on a counter that would keep them.
    others = {name for name, found in labels.items() if name.startswith("ddpjob_operator_") and "ddpjob" in found}
    assert all(name.startswith("ddpjob_operator_job_") for name in others)
    assert "job" not in set().union(*labels.values()), "it is Prometheus' own"


def test_the_pages_picture_is_small() -> None:
    assert (ROOT / "docs/images/job-dashboard.png").stat().st_size < 200_000
