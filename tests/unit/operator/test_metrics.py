"""What Prometheus reads from the operator: jobs as they are now, and what happened to them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ddpjob_core.api import DDPJobStatus, Phase
from ddpjob_core.api.status import Condition, ConditionType, Failure, Nodes, Progress, Restarts, Slowest, SlowPart
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.metrics import Metrics, Readings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = (None, 'a"b', "a\\", 'x",rank="0"} 7', "🙂", "a{b}c")


def record(name: str, status: DDPJobStatus | None, version: str = "1") -> JobRecord:
    return JobRecord("team", name, f"uid-{name}", version, 1, deleting=False, spec=None, status=status)


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Value by name and sorted values of labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(b"".join(metrics.parts()).decode())
        for sample in family.samples
    }


def stalled(status: str) -> Condition:
    return Condition(
        type=ConditionType.TRAINING_STALLED, status=status, last_transition_time=NOON, reason="R", message=""
    )


def slowest(node: str | None) -> Slowest:
    return Slowest(
        attempt=0, rank=3, ordinal=1, pod="digits-a0-1", node_name=node, factor=2.1, what=SlowPart.DATA, time=NOON
    )


def test_jobs_are_counted_by_phase_at_the_moment_of_the_scrape() -> None:
    metrics, jobs = Metrics(), [record("a", DDPJobStatus(phase=Phase.RUNNING)), record("b", None)]
    metrics.read(Readings(jobs=jobs))
    found = samples(metrics)
    assert [found["ddpjob_operator_jobs", phase] for phase in ("Running", "Pending", "Failed")] == [1, 1, 0]
    jobs.pop()
    assert samples(metrics)["ddpjob_operator_jobs", "Pending"] == 0


def test_memory_is_counted_by_namespace_where_it_is_much_and_for_the_others_together() -> None:
    def sized(namespace: str, size: int) -> JobRecord:
        return replace(record("a", None), namespace=namespace, uid=namespace, size=size)

    metrics, jobs = Metrics(), [sized("large", 600_000), sized("large", 600_000), sized("b", 1_000), sized("c", 2_000)]
    metrics.read(Readings(cached=jobs))
    found = {key[1]: value for key, value in samples(metrics).items() if key[0] == "ddpjob_operator_cached_job_bytes"}
    assert found == {"large": 1_200_000, "": 3_000}


def test_every_series_with_a_jobs_name_goes_with_the_job() -> None:
    status = DDPJobStatus(
        phase=Phase.RUNNING,
        attempt=2,
        start_time=NOON,
        restarts=Restarts(counted=2, process=1),
        nodes=Nodes(desired=2, ready=1),
        failure=Failure(failure_class="Signal", reason="Signal", message=""),
        conditions=[stalled("True")],
        progress=Progress(step=30, total_steps=120, loss=0.5, last_step_time=NOON),
        slowest=slowest("node-2"),
    )
    metrics, jobs = Metrics(), [record("digits", status)]
    metrics.read(Readings(jobs=jobs))
    job = {key: value for key, value in samples(metrics).items() if "digits" in key}
    prefix = "ddpjob_operator_job"
    assert job == {
        (f"{prefix}_phase", "Running", "digits", "team"): 1,
        (f"{prefix}_attempt", "digits", "team"): 2,
        (f"{prefix}_restarts_total", "counted", "digits", "team"): 2,
        (f"{prefix}_restarts_total", "digits", "ignored", "team"): 0,
        (f"{prefix}_restarts_total", "digits", "process", "team"): 1,
        (f"{prefix}_failure", "Signal", "digits", "team"): 1,
        (f"{prefix}_stalled", "digits", "team"): 1,
        (f"{prefix}_nodes", "desired", "digits", "team"): 2,
        (f"{prefix}_nodes", "digits", "ready", "team"): 1,
        (f"{prefix}_step", "digits", "team"): 30,
        (f"{prefix}_planned_steps", "digits", "team"): 120,
        (f"{prefix}_progress_ratio", "digits", "team"): 0.25,
        (f"{prefix}_loss", "digits", "team"): 0.5,
        (f"{prefix}_last_step_timestamp_seconds", "digits", "team"): NOON.timestamp(),
        (f"{prefix}_start_timestamp_seconds", "digits", "team"): NOON.timestamp(),
        (f"{prefix}_slowest_rank_factor", "3", "Data", "digits", "node-2", "team"): 2.1,
    }
    jobs.clear()
    assert not [key for key in samples(metrics) if "digits" in key]


def test_a_job_that_reports_nothing_has_no_step_and_no_progress() -> None:
    metrics = Metrics()
    metrics.read(Readings(jobs=[record("plain", DDPJobStatus(phase=Phase.RUNNING))]))
    found = samples(metrics)
    assert ("ddpjob_operator_job_phase", "Running", "plain", "team") in found
    assert not [name for name, *_ in found if "_step" in name or "_progress_ratio" in name or "_loss" in name]


def test_whatever_the_name_of_a_node_is_the_metrics_can_be_read() -> None:
    metrics = Metrics()
    jobs = [record(f"digits-{number}", DDPJobStatus(slowest=slowest(node))) for number, node in enumerate(NODES)]
    metrics.read(Readings(jobs=jobs))
    found = [key for key in samples(metrics) if key[0] == "ddpjob_operator_job_slowest_rank_factor"]
    assert len(found) == len(NODES)


def test_a_job_that_failed_of_a_stall_is_stalled_no_more() -> None:
    failed = Condition(type=ConditionType.FAILED, status="True", last_transition_time=NOON, reason="R", message="")
    metrics = Metrics()
    metrics.read(Readings(jobs=[record("stuck", DDPJobStatus(conditions=[stalled("True"), failed]))]))
    assert samples(metrics)["ddpjob_operator_job_stalled", "stuck", "team"] == 0


def failing(attempt: int, kind: str, **restarts: int) -> DDPJobStatus:
    failure = Failure(attempt=attempt, failure_class=kind, reason="R", message="")
    return DDPJobStatus(failure=failure, restarts=Restarts(**restarts))


def test_restarts_and_failures_are_counted_once_however_often_the_status_is_written() -> None:
    metrics = Metrics()
    first = failing(0, "Signal", counted=1)
    again = failing(1, "Signal", counted=1, ignored=1, process=2)
    known_better: Any = first.model_copy(update={"failure": first.failure.model_copy(update={"message": "more"})})  # type: ignore[union-attr]
    for before, after in ((None, first), (first, first), (first, known_better), (known_better, again), (again, again)):
        metrics.status_written(before, after)
    found = samples(metrics)
    assert [found["ddpjob_operator_restarts_total", kind] for kind in ("counted", "ignored", "process")] == [1, 1, 2]
    assert found["ddpjob_operator_failures_total", "Signal"] == 2
    assert found["ddpjob_operator_failures_total", "OutOfMemory"] == 0, "there from the beginning, so that rates see 1"
    assert found["ddpjob_operator_watch_reconnects_total", "failed", "pods"] == 0


def test_a_status_that_was_erased_and_rebuilt_takes_no_restart_back() -> None:
    metrics = Metrics()
    metrics.status_written(failing(3, "Error", counted=3), DDPJobStatus())
    assert samples(metrics)["ddpjob_operator_restarts_total", "counted"] == 0


def test_what_the_process_knows_is_read_at_the_scrape() -> None:
    depth = 2.0
    metrics = Metrics()
    metrics.read(Readings(queue_depth=lambda: depth, watch_ages={"pods": lambda: 3.0}))
    metrics.request("create", "pods", "201")
    metrics.answered("create", "pods", 0.02)
    found = samples(metrics)
    assert found["ddpjob_operator_api_requests_total", "201", "create", "pods"] == 1
    assert found["ddpjob_operator_api_request_seconds_bucket", "0.025", "create", "pods"] == 1
    assert found["ddpjob_operator_api_request_seconds_bucket", "0.01", "create", "pods"] == 0
    assert found["ddpjob_operator_watch_age_seconds", "pods"] == 3
    assert found["ddpjob_operator_queue_depth",] == 2
    depth = 5.0
    assert samples(metrics)["ddpjob_operator_queue_depth",] == 5


def test_operators_of_different_namespaces_have_series_of_their_own() -> None:
    metrics = Metrics()
    served = {"team-a": True, "team-b": False}
    metrics.read(Readings(leading=lambda: 1.0, lease="ddpjob-operator.team-a", namespaces=lambda: served))
    found = samples(metrics)
    assert found["ddpjob_operator_leading", "ddpjob-operator.team-a"] == 1
    assert found["ddpjob_operator_namespace_served", "team-a"] == 1
    assert found["ddpjob_operator_namespace_served", "team-b"] == 0


def test_thousands_of_jobs_are_written_in_parts_of_a_few_hundred() -> None:
    metrics = Metrics()
    metrics.read(Readings(jobs=[record(f"job-{number}", DDPJobStatus()) for number in range(1000)]))
    parts = list(metrics.parts())
    assert max(part.count(b"\n") for part in parts[1:]) <= 750
    assert b"".join(parts).count(b"ddpjob_operator_job_phase{") == 1000
