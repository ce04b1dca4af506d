"""Templates of the chart that are made from the manifests, so that nothing is written twice."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from ddpjob_core.api.constants import GROUP, PLURAL
from ddpjob_core.api.crd import custom_resource_definition, render
from ddpjob_core.api.scope import LEASE_NAME
from hack.cache import ROOT
from hack.generate.permissions import CLUSTER_ROLE, NETWORK_POLICIES, ROLE, rules_for_network_policies

CHART: Final = "manifests/chart/ddpjob"
ADMISSION_POLICY: Final = ROOT / "manifests/base/admission-policy.yaml"
STRICT_REFERENCES: Final = ROOT / "manifests/overlays/strict-references/admission-policy.yaml"
POD_MONITORS: Final = ROOT / "manifests/overlays/prometheus-operator/pod-monitors.yaml"

_LABELS: Final = '  labels:\n    {{- include "ddpjob.labels" . | nindent 4 }}\n'
_PLAIN_LABELS: Final = "  labels:\n    app.kubernetes.io/name: ddpjob-operator\n"
_KEEP: Final = """\
  {{- if .Values.crd.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""
_ISOLATING: Final = "jobNetworkPolicies"
_LEASE: Final = f"  - {LEASE_NAME}\n"
_LEASE_VALUE: Final = '  - {{ include "ddpjob.lease" . }}\n'
_PRIORITY_CLASS: Final = "'ddpjob-critical'"
_PRIORITY_VALUE: Final = '{{ .Values.priorityClass.name | default "ddpjob-critical" | squote }}'


def crd_template() -> str:
    """The definition of DDPJobs, and whether it outlives the release."""
    text = _escaped(render(custom_resource_definition()))
    name = f"  name: {PLURAL}.{GROUP}\n"
    return _switched("crd", "operator/ddpjob_core/api", _replaced(text, name, f"{name}{_LABELS}{_KEEP}"))


def admission_policy_template() -> str:
    """The policy and its binding."""
    text = _escaped(ADMISSION_POLICY.read_text())
    text = _replaced(text, _PLAIN_LABELS, _LABELS, times=2)
    text = _replaced(text, _PRIORITY_CLASS, _PRIORITY_VALUE)
    more = _escaped(STRICT_REFERENCES.read_text())
    text = _replaced(text, "\n  validations:\n", f"\n{_strict(_added(more, 'variables'))}  validations:\n")
    text = _replaced(text, "\n---\n", f"\n{_strict(_added(more, 'validations'))}---\n")
    sources = (ADMISSION_POLICY.relative_to(ROOT), STRICT_REFERENCES.relative_to(ROOT))
    return _switched("admissionPolicy", ", ".join(map(str, sources)), text)


def _added(patch: str, field: str) -> str:
    """The items that a patch adds to a list in the spec, as they stand in the patched text."""
    operations = re.sub(r"^#.*\n", "", patch, flags=re.MULTILINE).split("- op: add\n")
    start = f"  path: /spec/{field}/-\n  value:\n"
    values = [textwrap.dedent(each.removeprefix(start)) for each in operations if each.startswith(start)]
    return "".join(f"    - {textwrap.indent(value, ' ' * 6).lstrip()}" for value in values)


def _strict(items: str) -> str:
    return f"{{{{- if .Values.admissionPolicy.strictReferences }}}}\n{items}{{{{- end }}}}\n"


def named_templates() -> str:
    """What templates of the chart include: the rules of roles, and what PodMonitors scrape."""
    monitors = {each["metadata"]["name"]: each for each in yaml.safe_load_all(POD_MONITORS.read_text())}
    parts = {
        "ddpjob.scrape.operator": monitors["ddpjob-operator"]["spec"]["podMetricsEndpoints"],
        "ddpjob.scrape.trainer": monitors["ddpjob-trainer"]["spec"]["podMetricsEndpoints"],
    }
    sources = [path.relative_to(ROOT) for path in (CLUSTER_ROLE, NETWORK_POLICIES, ROLE, POD_MONITORS)]
    isolating = f"{{{{- if .Values.{_ISOLATING}.install }}}}\n{_items(rules_for_network_policies())}{{{{- end }}}}\n"
    of_jobs = _definition("ddpjob.rules.jobs", _items(_rules(CLUSTER_ROLE)) + isolating)
    of_leases = _definition("ddpjob.rules.leases", _replaced(_items(_rules(ROLE)), _LEASE, _LEASE_VALUE))
    scraped = "".join(_definition(name, _items(items)) for name, items in parts.items())
    limits = "".join(
        _definition(f"{name}.limits", _limits(monitors[name.replace("ddpjob.scrape.", "ddpjob-")])) for name in parts
    )
    return _header(*sources) + of_jobs + of_leases + scraped + limits


def _limits(monitor: Mapping[str, Any]) -> str:
    """What a PodMonitor takes at most."""
    found = {name: each for name, each in monitor["spec"].items() if name.endswith("Limit")}
    return _escaped(yaml.safe_dump(found, sort_keys=False))


def _rules(role: Path) -> list[Any]:
    rules: list[Any] = yaml.safe_load(role.read_text())["rules"]
    return rules


def _items(items: Iterable[Mapping[str, Any]]) -> str:
    return _escaped(yaml.safe_dump(list(items), sort_keys=False, width=120))


def _definition(name: str, text: str) -> str:
    return f'{{{{- define "{name}" -}}}}\n{text}{{{{- end -}}}}\n'


def _header(*sources: object) -> str:
    listed = ", ".join(map(str, sources))
    return f"{{{{- /* Generated from {listed} by `python -m hack.generate`; do not edit. */}}}}\n"


def _switched(value: str, source: object, text: str) -> str:
    return f"{_header(source)}{{{{- if .Values.{value}.install }}}}\n{text}{{{{- end }}}}\n"


def _escaped(text: str) -> str:
    """A text that Helm prints as it is."""
    return text.replace("{{", '{{ "{{" }}')


def _replaced(text: str, old: str, new: str, times: int = 1) -> str:
    """Replace what must be there, exactly that often.

    Raises:
        ValueError: it is there more or less often, so the result would not be what the template is meant to be.
    """
    if text.count(old) != times:
        raise ValueError(
            f"{old!r} must occur {times} times in the source of a template, and does {text.count(old)} times"
        )
    return text.replace(old, new)
