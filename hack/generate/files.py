"""Write the files made from API types, imports, permissions, metrics and alerts, or check that they are up to date."""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ddpjob_core.api.crd import custom_resource_definition, render
from hack.cache import ROOT
from hack.generate.api_reference import api_reference
from hack.generate.chart.about import chart_file
from hack.generate.chart.templates import CHART, admission_policy_template, crd_template, named_templates
from hack.generate.chart.values import PAGE as INSTALL_PAGE
from hack.generate.chart.values import install_page, values_file
from hack.generate.monitoring.alerts import prometheus_rule, rules_file
from hack.generate.monitoring.fleet_dashboard import FLEET_DASHBOARD
from hack.generate.monitoring.job_dashboard import JOB_DASHBOARD
from hack.generate.monitoring.metrics_page import metrics_page
from hack.generate.monitoring.panels import render as dashboard
from hack.generate.permissions import granted, namespaced_role, permissions_page
from hack.generate.release import MODULE, release_module
from hack.generate.rooms import PAGE, architecture_page

_HEADER: Final = "# Generated from operator/ddpjob_core/api by `python -m hack.generate`; do not edit.\n"

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "manifests/crd/ddpjobs.yaml": lambda: _HEADER + render(custom_resource_definition()),
    "docs/api-reference.md": api_reference,
    PAGE: architecture_page,
    "docs/rbac.md": lambda: permissions_page(granted()),
    "manifests/overlays/namespaces/role/role.yaml": namespaced_role,
    MODULE: release_module,
    "docs/metrics.md": metrics_page,
    "manifests/prometheus/rules.yaml": rules_file,
    "manifests/overlays/prometheus-operator/rules.yaml": prometheus_rule,
    "manifests/grafana/job.json": lambda: dashboard(JOB_DASHBOARD),
    "manifests/grafana/fleet.json": lambda: dashboard(FLEET_DASHBOARD),
    f"{CHART}/Chart.yaml": chart_file,
    f"{CHART}/templates/crd.yaml": crd_template,
    f"{CHART}/templates/admission-policy.yaml": admission_policy_template,
    f"{CHART}/templates/_generated.tpl": named_templates,
    # Helm reads only files below the chart.
    f"{CHART}/files/rules.yaml": rules_file,
    f"{CHART}/files/job.json": lambda: dashboard(JOB_DASHBOARD),
    f"{CHART}/files/fleet.json": lambda: dashboard(FLEET_DASHBOARD),
    f"{CHART}/values.yaml": values_file,
    INSTALL_PAGE: install_page,
}


def outdated(root: Path = ROOT) -> dict[str, str]:
    """The files that are not current, each with its difference to what it should be."""
    found = {}
    for name, make in GENERATED.items():
        path, wanted = root / name, make()
        present = path.read_text() if path.exists() else ""
        if present != wanted:
            lines = difflib.unified_diff(present.split("\n"), wanted.split("\n"), name, "generated", lineterm="")
            found[name] = "\n".join(lines)
    return found


def write(root: Path = ROOT) -> list[str]:
    """Write what is not current; returns the names of those files."""
    names = list(outdated(root))
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GENERATED[name]())
    return names


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.generate", description="Generate manifests and pages.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not current")
    if not parser.parse_args().check:
        for name in write():
            print(f"generated {name}")
        return 0
    differences = outdated()
    for name, difference in differences.items():
        print(difference)
        print(f"{name} is out of date: run `python -m hack.generate` and commit it", file=sys.stderr)
    return 1 if differences else 0
