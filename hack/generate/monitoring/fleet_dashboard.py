"""The dashboard of all jobs and of the operator: what needs attention, and whether the operator keeps up."""

from typing import Final

from hack.generate.monitoring.panels import Dashboard, Panel, Query, Row, Show

_JOBS: Final = 'namespace=~"$namespace", ddpjob=~"$ddpjob"'
_RATE: Final = "[$__rate_interval]"
# Selects the operator's own process among all that Prometheus scrapes.
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
            text="All DDPJobs in the cluster by phase.",
            unit="none",
            show=Show.STACK,
            queries=(Query("sum by (phase) (ddpjob_operator_jobs)", "{{phase}}"),),
        ),
        Panel(
            title="Restarts",
            text="Restarts of all jobs: of all pods (counted, ignored) and of the worker processes in running pods "
            "(process).",
            unit="none",
            show=Show.BARS,
            queries=(Query(_increase("restarts_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            title="Failures by class",
            text="Root causes that ended attempts. Many of one class at the same time point to the cluster, not to "
            "the programs.",
            unit="none",
            show=Show.BARS,
            queries=(Query(_increase("failures_total", "class"), "{{class}}"),),
        ),
        Panel(
            title="Progress",
            text="Share of the planned steps that are done, for the selected jobs that report progress.",
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
            text="The ten selected jobs with the most restarts, excluding ignored ones.",
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
            text="Selected jobs that have completed no step for longer than their spec.progressDeadline.",
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
            text="Jobs waiting for a reconcile. The queue empties within seconds unless something is wrong.",
            unit="none",
            queries=(Query("max(ddpjob_operator_queue_depth)", "waiting"),),
        ),
        Panel(
            title="Queue age",
            text="How long the oldest job in the queue has been waiting, and how long the longest reconcile has been "
            "running.",
            unit="s",
            queries=(
                Query("max(ddpjob_operator_queue_oldest_seconds)", "waiting"),
                Query("max(ddpjob_operator_reconcile_longest_seconds)", "reconciling"),
            ),
        ),
        Panel(
            title="Reconcile latency",
            text="Duration of one reconcile of one job, including its requests.",
            unit="s",
            queries=_quantiles("reconcile_seconds", ""),
        ),
        Panel(
            title="Reconciles",
            text="Reconciles of jobs. The cost of each is proportional to the number of the job's pods.",
            unit="ops",
            queries=(Query(f"sum(rate(ddpjob_operator_reconcile_seconds_count{_RATE}))", "reconciles"),),
        ),
        Panel(
            title="Errors and conflicts",
            text="Reconciles that failed with an unexpected error, and status writes rejected because the job had "
            "changed. Conflicts are normal while a user edits a job.",
            unit="ops",
            queries=(
                Query(f"sum(rate(ddpjob_operator_reconcile_errors_total{_RATE}))", "errors"),
                Query(f"sum(rate(ddpjob_operator_status_conflicts_total{_RATE}))", "conflicts"),
            ),
        ),
        Panel(
            title="Progress polls",
            text="Polls of jobs' progress by outcome. It is normal for some to be unreachable while pods start.",
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
            text="Requests by verb and resource. While nothing changes, there are only renewed watches.",
            unit="reqps",
            queries=(_requests("verb, resource"),),
        ),
        Panel(
            title="API responses",
            text="Requests by HTTP status code. 409 is a conflict; with 429 the server throttles the operator.",
            unit="reqps",
            queries=(_requests("code"),),
        ),
        Panel(
            title="API latency",
            text="Time until the API server starts to respond, by verb, excluding watches.",
            unit="s",
            queries=_quantiles("api_request_seconds", "verb"),
        ),
        Panel(
            title="Watch age",
            text="Time since the last activity on each watch. Up to 30 s is normal; after 90 s the operator is "
            "unhealthy.",
            unit="s",
            queries=(Query("max by (resource) (ddpjob_operator_watch_age_seconds)", "{{resource}}"),),
        ),
        Panel(
            title="Watch reconnects",
            text="Reconnects of watches by reason. Each watch ends after 30 s; the reasons failed and gone are not "
            "normal.",
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
            text="How late the event loop is. Whatever blocks it blocks every job.",
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
            text="Number of CPUs that the operator uses.",
            unit="suffix: CPUs",
            queries=(Query(f"rate(process_cpu_seconds_total{_RATE}) {_OWN}", "busy"),),
        ),
        Panel(
            title="Cached pods and polled jobs",
            text="Number of pods in the operator's cache, and of jobs whose progress it polls.",
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
    text="All DDPJobs in the cluster, and the operator that runs them.",
    rows=(_FLEET, _WORK, _API, _PROCESS),
    many=True,
)
