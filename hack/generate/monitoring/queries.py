"""The queries of committed dashboards and rules, to run against Prometheus."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Target:
    """A query of a panel or an annotation."""

    title: str
    unit: str
    expression: str
    legend: str


def targets(dashboard: Path) -> list[Target]:
    """The queries of all panels, in their order."""
    return list(_targets(json.loads(dashboard.read_text())["panels"]))


def _targets(panels: list[dict[str, Any]]) -> Iterator[Target]:
    for panel in panels:
        for target in panel.get("targets", []):
            unit = panel["fieldConfig"]["defaults"]["unit"]
            yield Target(panel["title"], unit, target["expr"], target["legendFormat"])


def annotations(dashboard: Path) -> list[Target]:
    """The queries of all annotations."""
    listed = json.loads(dashboard.read_text())["annotations"]["list"]
    return [Target(each["name"], "", each["expr"], each["name"]) for each in listed]


def rules(file: Path) -> dict[str, str]:
    """Alerts and their expressions."""
    return {
        rule["alert"]: rule["expr"] for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]
    }


def fill(expression: str, variables: Mapping[str, str]) -> str:
    """An expression with Grafana's variables, such as `$namespace`, replaced.

    Raises:
        KeyError: one of its variables has no value.
    """
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)


def legend(pattern: str, labels: Mapping[str, str]) -> str:
    """The name of a series, from a legend such as `rank {{rank}}`."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), pattern)


def operands(expression: str) -> list[str]:
    """The parts of an alert's expression without their thresholds: what must have a value before it can be judged."""
    parts = re.split(r"\n(?:and|or|unless)\n", expression.strip())
    values = [re.sub(r"\s(?:==|>=?|<=?)\s[\d.]+$", "", part) for part in parts]
    return [re.sub(r"^absent\((.*)\)$", r"\1", value) for value in values]
