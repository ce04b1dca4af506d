"""The alert rules, from one source for Prometheus itself and for the Prometheus operator."""

from dataclasses import dataclass
from typing import Any, Final

import yaml

GROUP: Final = "ddpjob"
RUNBOOKS: Final = "docs/runbooks"
_HEADER: Final = "# Generated from hack/generate/monitoring/alerts.py by `python -m hack.generate`; do not edit.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert: its query, how long it must hold, and the runbook."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    text: str
    runbook: str
    """Name of the page in docs/runbooks, without its extension."""

    def rule(self) -> dict[str, Any]:
        """The rule in the form that Prometheus reads."""
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

# While two operators are scraped, as during an update, an alert treats their series of one job as one.
ALERTS: Final = (
    Alert(
        name="DDPJobStalled",
        expression="""
max by (namespace, ddpjob) (ddpjob_operator_job_stalled) == 1
""",
        lasting="1m",
        severity="warning",
        summary=f"DDPJob {_JOB} is stalled",
        text="No step was completed for longer than spec.progressDeadline. The condition TrainingStalled names the "
        "rank.",
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
        summary=f"DDPJob {_JOB} keeps restarting",
        text="Its pods or worker processes were restarted {{ $value | humanize }} times in 15 minutes, or in two hours "
        "without a step.",
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
        summary=f"DDPJob {_JOB} has completed no step for half an hour",
        text="Its pods are running and it has reported steps before, but its step does not change.",
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
        summary=f"Rank {{{{ $labels.rank }}}} of DDPJob {_JOB} is slowing down the others",
        text="The time that it spends on its own data and forward pass exceeds the average of the other ranks by "
        "{{ $value | humanizePercentage }} of the elapsed time.",
        runbook="straggler",
    ),
    Alert(
        name="DDPJobSlowRank",
        expression="""
max by (namespace, ddpjob, rank, node, what) (ddpjob_operator_job_slowest_rank_factor) > 0
""",
        lasting="10m",
        severity="info",
        summary=f"Rank {{{{ $labels.rank }}}} of DDPJob {_JOB} on node {{{{ $labels.node }}}} is slow",
        text="By its own clock it takes {{ $value | humanize }} times as long as the others for its own part of a step "
        "({{ $labels.what }}). All of them wait for it.",
        runbook="straggler",
    ),
    Alert(
        name="DDPJobNotFinite",
        expression="""
count by (namespace, ddpjob) (
  ddpjob_operator_job_failure{class="NotFinite"} == 1
  unless
  ddpjob_operator_job_failure{class="NotFinite"} offset 1h
)
or
count by (namespace, ddpjob) (increase(ddpjob_trainer_not_finite_total[15m]) > 0)
or
count by (namespace, ddpjob) (ddpjob_trainer_loss != ddpjob_trainer_loss or abs(ddpjob_trainer_loss) == Inf)
""",
        lasting="0m",
        severity="warning",
        summary=f"The loss of DDPJob {_JOB} is not finite",
        text="A loss, a gradient or the state of the training became NaN or infinite. The log and status.failure name "
        "the step and the rank.",
        runbook="not-finite",
    ),
    Alert(
        name="DDPJobOperatorDown",
        expression="""
absent(ddpjob_operator_queue_depth) == 1
""",
        lasting="5m",
        severity="critical",
        summary="Prometheus finds no ddpjob operator",
        text="Running jobs continue, but no job is started, restarted or checked, and no status is written.",
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
        summary="The ddpjob operator keeps restarting",
        text="{{ $value | humanize }} restarts in half an hour. Between them no job is started, restarted or checked.",
        runbook="operator-down",
    ),
    Alert(
        name="DDPJobOperatorWithoutLeader",
        expression="""
max by (lease) (ddpjob_operator_leading) == 0
""",
        lasting="2m",
        severity="critical",
        summary="No ddpjob operator leads with Lease {{ $labels.lease }}",
        text="Operators run, but none of them holds the Lease: none of its jobs is started, restarted or checked.",
        runbook="operator-leader",
    ),
    Alert(
        name="DDPJobOperatorsOverlap",
        expression="""
max by (namespace, pod) (ddpjob_operator_overlapping_leases) > 0
""",
        lasting="5m",
        severity="warning",
        summary="Two ddpjob operators with different scopes serve some of the same jobs",
        text="{{ $labels.namespace }}/{{ $labels.pod }} does nothing, because another operator leads some of its jobs.",
        runbook="operator-leader",
    ),
    Alert(
        name="DDPJobOperatorNamespaceNotServed",
        expression="""
max by (namespace) (ddpjob_operator_namespace_served) == 0
""",
        lasting="5m",
        severity="warning",
        summary="The ddpjob operator cannot watch namespace {{ $labels.namespace }}",
        text="Running jobs there continue, but none is started, restarted or checked.",
        runbook="namespace-not-served",
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
        summary="The ddpjob operator is stuck",
        text="The queue age, the longest reconcile or the event loop lag is {{ $value | humanizeDuration }}.",
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
        summary="The ddpjob operator's watch of {{ $labels.resource }} is failing or silent",
        text="The operator learns of changes in the cluster late or not at all.",
        runbook="watch-errors",
    ),
)


class _Text(str):
    """A text of several lines, which YAML is to show as such."""

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
