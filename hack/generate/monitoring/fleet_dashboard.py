"""The dashboard of all jobs and of the operator: what needs somebody's attention, and whether the operator keeps up."""

from typing import Final

from hack.generate.monitoring.panels import Dashboard, Panel, Query, Row, Show

_JOBS: Final = 'namespace=~"$namespace", ddpjob=~"$ddpjob"'
_RATE: Final = "[$__rate_interval]"
# What tells the operator's own process from all others that Prometheus scrapes.
_OWN: Final = "and on (namespace, pod, instance) ddpjob_operator_queue_depth"


def _quantiles(metric: str, by: str) -> tuple[Query, ...]:
    labels, legend = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    rate = f"sum by ({labels}) (rate(ddpjob_operator_{metric}_bucket{_RATE}))"
    return tuple(Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:g}{legend}") for share in (0.5, 0.99))


def _increase(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase(ddpjob_operator_{metric}{_RATE}))"


def _requests(by: str) -> Query:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return Query(f"sum by ({by}) (rate(ddpjob_operator_api_requests_total{_RATE}))", legend)


_FLEET: Final = Row(
    "Jobs",
    (
        Panel(
            title="Jobs by state",
            text="All DDPJobs of the cluster by phase.",
            unit="none",
            show=Show.STACK,
            queries=(Query("sum by (phase) (ddpjob_operator_jobs)", "{{phase}}"),),
        ),
        Panel(
            title="Restarts",
            text="Restarts of all jobs: of all pods (counted, ignored) and of worker processes in running pods.",
            unit="none",
            show=Show.BARS,
            queries=(Query(_increase("restarts_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            title="Failures by class",
            text="What ended attempts. Many of one class at once point at the cluster and not at the programs.",
            unit="none",
            show=Show.BARS,
            queries=(Query(_increase("failures_total", "class"), "{{class}}"),),
        ),
        Panel(
            title="Progress",
            text="Of the chosen jobs that have reported any.",
            unit="percentunit",
            most=1,
            queries=(
                Query(
                    f"max by (namespace, ddpjob) (ddpjob_operator_job_progress_ratio{{{_JOBS}}})",
                    "{{namespace}}/{{ddpjob}}",
                ),
            ),
        ),
        Panel(
            title="Restarts of jobs",
            text="The ten of the chosen jobs that were restarted most.",
            unit="none",
            queries=(
                Query(
                    "topk(10, sum by (namespace, ddpjob) "
                    f'(ddpjob_operator_job_restarts_total{{{_JOBS}, kind!="ignored"}}) > 0)',
                    "{{namespace}}/{{ddpjob}}",
                ),
            ),
        ),
        Panel(
            title="Stalled jobs",
            text="Of the chosen jobs those that make no step for longer than their spec.progressDeadline.",
            unit="bool_yes_no",
            queries=(
                Query(
                    f"max by (namespace, ddpjob) (ddpjob_operator_job_stalled{{{_JOBS}}}) == 1",
                    "{{namespace}}/{{ddpjob}}",
                ),
            ),
        ),
    ),
)
_WORK: Final = Row(
    "Operator: work",
    (
        Panel(
            title="Queue",
            text="Jobs that wait to be reconciled. The queue empties within seconds unless something is wrong.",
            unit="none",
            queries=(Query("max(ddpjob_operator_queue_depth)", "waiting"),),
        ),
        Panel(
            title="Queue age",
            text="How long the longest waiting job waits, and how long the longest look at a job lasts.",
            unit="s",
            queries=(
                Query("max(ddpjob_operator_queue_oldest_seconds)", "waiting"),
                Query("max(ddpjob_operator_reconcile_longest_seconds)", "looked at"),
            ),
        ),
        Panel(
            title="Reconcile latency",
            text="Duration of one look at one job, its requests included.",
            unit="s",
            queries=_quantiles("reconcile_seconds", ""),
        ),
        Panel(
            title="Reconciles",
            text="Looks at jobs; each costs in proportion to the job's pods.",
            unit="ops",
            queries=(Query(f"sum(rate(ddpjob_operator_reconcile_seconds_count{_RATE}))", "looks"),),
        ),
        Panel(
            title="Errors and conflicts",
            text="Looks that ended in a bug, and status writes refused because the job had changed. The latter are "
            "ordinary while somebody edits a job.",
            unit="ops",
            queries=(
                Query(f"sum(rate(ddpjob_operator_reconcile_errors_total{_RATE}))", "errors"),
                Query(f"sum(rate(ddpjob_operator_status_conflicts_total{_RATE}))", "conflicts"),
            ),
        ),
        Panel(
            title="Progress polls",
            text="Reads of trainings' progress by outcome. Unreachable ones are ordinary while pods start.",
            unit="ops",
            queries=(Query(f"sum by (outcome) (rate(ddpjob_operator_progress_polls_total{_RATE}))", "{{outcome}}"),),
        ),
    ),
)
_API: Final = Row(
    "Operator: API server",
    (
        Panel(
            title="API calls",
            text="Requests by verb and resource. Where nothing changes there are none but renewed watches.",
            unit="reqps",
            queries=(_requests("verb, resource"),),
        ),
        Panel(
            title="API answers",
            text="Requests by HTTP status code. 409 is a conflict, 429 a server that asks to wait.",
            unit="reqps",
            queries=(_requests("code"),),
        ),
        Panel(
            title="API latency",
            text="Time until the API server began to answer, by verb, without watches.",
            unit="s",
            queries=_quantiles("api_request_seconds", "verb"),
        ),
        Panel(
            title="Watch age",
            text="Time since each watch gave a sign of life. Up to 30 s is ordinary; after 90 s it is unhealthy.",
            unit="s",
            queries=(Query("max by (resource) (ddpjob_operator_watch_age_seconds)", "{{resource}}"),),
        ),
        Panel(
            title="Watches renewed",
            text="By reason: every watch ends after 30 s; failed and gone ones are not ordinary.",
            unit="none",
            show=Show.BARS,
            queries=(Query(_increase("watch_reconnects_total", "resource, reason"), "{{resource}} {{reason}}"),),
        ),
    ),
)
_PROCESS: Final = Row(
    "Operator: process",
    (
        Panel(
            title="Event loop lag",
            text="How late the event loop was: what blocks it blocks every job.",
            unit="s",
            queries=(Query("max(ddpjob_operator_event_loop_lag_seconds)", "lag"),),
        ),
        Panel(
            title="Memory",
            text="Resident memory of the operator.",
            unit="bytes",
            queries=(Query(f"process_resident_memory_bytes {_OWN}", "resident"),),
        ),
        Panel(
            title="CPU time",
            text="CPUs that the operator keeps busy.",
            unit="suffix: CPUs",
            queries=(Query(f"rate(process_cpu_seconds_total{_RATE}) {_OWN}", "busy"),),
        ),
        Panel(
            title="Followed",
            text="Pods in the operator's cache, and trainings whose progress it reads.",
            unit="none",
            queries=(
                Query("max(ddpjob_operator_pods)", "pods"),
                Query("max(ddpjob_operator_progress_targets)", "trainings"),
            ),
        ),
    ),
)

FLEET_DASHBOARD: Final = Dashboard(
    uid="ddpjob-fleet",
    title="ddpjob / Fleet and operator",
    text="All DDPJobs of the cluster, and the operator that keeps them.",
    rows=(_FLEET, _WORK, _API, _PROCESS),
    many=True,
)
