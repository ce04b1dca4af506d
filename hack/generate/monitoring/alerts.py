"""The alert rules, from one source for Prometheus itself and for the Prometheus operator."""

from dataclasses import dataclass
from typing import Any, Final

import yaml

GROUP: Final = "ddpjob"
RUNBOOKS: Final = "docs/runbooks"
_HEADER: Final = "# Generated from hack/generate/monitoring/alerts.py by `python -m hack.generate`; do not edit.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert: what is asked, how long it must hold, and the page that says what to do."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    text: str
    runbook: str
    """Name of the page in docs/runbooks, without its ending."""

    def rule(self) -> dict[str, Any]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression.strip() + "\n",
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.text,
                "runbook_url": f"{RUNBOOKS}/{self.runbook}.md",
            },
        }


_JOB: Final = "{{ $labels.namespace }}/{{ $labels.ddpjob }}"

# Where two operators are scraped for a moment, as during an update, their series of one job are one to an alert.
ALERTS: Final = (
    Alert(
        name="DDPJobStalled",
        expression="""
max by (namespace, ddpjob) (ddpjob_operator_job_stalled) == 1
""",
        lasting="1m",
        severity="warning",
        summary=f"DDPJob {_JOB} stands still",
        text="No step for longer than its spec.progressDeadline. The condition TrainingStalled names the rank.",
        runbook="stalled",
    ),
    Alert(
        name="DDPJobCrashLooping",
        expression="""
sum by (namespace, ddpjob) (increase(ddpjob_operator_job_restarts_total{kind!="ignored"}[15m])) >= 3
or
sum by (namespace, ddpjob) (increase(ddpjob_operator_job_restarts_total{kind!="ignored"}[2h])) >= 4
unless
max by (namespace, ddpjob) (changes(ddpjob_operator_job_step[2h])) > 0
""",
        lasting="0m",
        severity="warning",
        summary=f"DDPJob {_JOB} is restarted again and again",
        text="{{ $value | humanize }} restarts of its pods or worker processes in 15 minutes, or in two hours without "
        "a step.",
        runbook="crash-looping",
    ),
    Alert(
        name="DDPJobNoProgress",
        expression="""
max by (namespace, ddpjob) (changes(ddpjob_operator_job_step[30m])) == 0
and
time() - max by (namespace, ddpjob) (ddpjob_operator_job_last_step_timestamp_seconds) > 1800
and
time() - max by (namespace, ddpjob) (ddpjob_operator_job_start_timestamp_seconds) > 1800
and
max by (namespace, ddpjob) (ddpjob_operator_job_phase{phase=~"Running|Restarting|Stalled"}) == 1
""",
        lasting="5m",
        severity="warning",
        summary=f"DDPJob {_JOB} has made no step for half an hour",
        text="Its pods are up and it has reported steps before, but the number of steps does not change.",
        runbook="no-progress",
    ),
    Alert(
        name="DDPJobStraggler",
        expression="""
(
  sum by (namespace, ddpjob, rank) (rate(ddpjob_trainer_local_seconds_total[5m]))
  * on (namespace, ddpjob) group_left ()
  count by (namespace, ddpjob) (sum by (namespace, ddpjob, rank) (rate(ddpjob_trainer_local_seconds_total[5m])))
  - on (namespace, ddpjob) group_left ()
  sum by (namespace, ddpjob) (rate(ddpjob_trainer_local_seconds_total[5m]))
)
/ on (namespace, ddpjob) group_left ()
(count by (namespace, ddpjob) (sum by (namespace, ddpjob, rank) (rate(ddpjob_trainer_local_seconds_total[5m]))) - 1)
> 0.2
""",
        lasting="10m",
        severity="info",
        summary=f"Rank {{{{ $labels.rank }}}} of DDPJob {_JOB} keeps the others waiting",
        text="It spends {{ $value | humanizePercentage }} of the time more on its own data and forward pass than the "
        "others do on average.",
        runbook="straggler",
    ),
    Alert(
        name="DDPJobOperatorDown",
        expression="""
absent(ddpjob_operator_queue_depth) == 1
""",
        lasting="5m",
        severity="critical",
        summary="No ddpjob operator is scraped",
        text="Trainings go on, but none is started, restarted or judged, and no status is written.",
        runbook="operator-down",
    ),
    Alert(
        name="DDPJobOperatorCrashLooping",
        expression="""
max by (namespace) (
  changes(process_start_time_seconds[30m])
  and on (instance)
  last_over_time(ddpjob_operator_queue_depth[30m])
) >= 3
""",
        lasting="0m",
        severity="critical",
        summary="The ddpjob operator is restarted again and again",
        text="{{ $value | humanize }} restarts in half an hour. Meanwhile no job is started, restarted or judged.",
        runbook="operator-down",
    ),
    Alert(
        name="DDPJobOperatorStuck",
        expression="""
max(ddpjob_operator_queue_oldest_seconds) > 60
or
max(ddpjob_operator_reconcile_longest_seconds) > 60
or
max(ddpjob_operator_event_loop_lag_seconds) > 5
""",
        lasting="2m",
        severity="critical",
        summary="The ddpjob operator does not get on with its work",
        text="A job waits or is looked at, or the event loop is late, for {{ $value | humanizeDuration }}.",
        runbook="operator-stuck",
    ),
    Alert(
        name="DDPJobOperatorWatchErrors",
        expression="""
max by (resource) (ddpjob_operator_watch_age_seconds) > 60
or
sum by (resource) (increase(ddpjob_operator_watch_reconnects_total{reason="failed"}[10m])) > 5
or
sum by (resource) (increase(ddpjob_operator_api_requests_total{verb="watch", code!="200"}[10m])) > 5
""",
        lasting="1m",
        severity="warning",
        summary="The ddpjob operator's watch of {{ $labels.resource }} fails or is silent",
        text="What changes in the cluster reaches the operator late or not at all.",
        runbook="watch-errors",
    ),
)


class _Text(str):
    """A text of several lines, which YAML shall show as such."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def rules_file() -> str:
    """For `rule_files` of a Prometheus configuration."""
    return _HEADER + _dump(_groups())


def prometheus_rule() -> str:
    """For the Prometheus operator."""
    metadata = {"name": "ddpjob", "labels": {"app.kubernetes.io/name": "ddpjob-operator"}}
    return _HEADER + _dump(
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": _groups()}
    )


def _groups() -> dict[str, Any]:
    rules = [alert.rule() for alert in ALERTS]
    return {"groups": [{"name": GROUP, "rules": [{**rule, "expr": _Text(rule["expr"])} for rule in rules]}]}


def _dump(value: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120)
