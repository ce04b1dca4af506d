"""docs/metrics.md: every metric of the operator and of the trainer, read from what they actually expose."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from ddpjob_core.api.status import DDPJobStatus, Failure, Nodes, Phase, Progress
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.metrics import Metrics, Readings
from ddpjob_trainer.observability.metrics import GpuMemory, ProcessInfo, TrainerMetrics

# The longest suffix that matches wins.
_UNITS: Final = (
    ("_timestamp_seconds", "Unix time, s"),
    ("_time_seconds", "Unix time, s"),
    ("_per_second", "1/s"),
    ("_seconds", "s"),
    ("_bytes", "bytes"),
    ("_ratio", "0 to 1"),
)
_WITH_COUNTERS: Final = "_created"
_OF_THE_PROCESS: Final = "process_"

_INTRODUCTION: Final = """\
# Metrics

<!-- Generated from what operator and trainer expose by `python -m hack.generate`; do not edit. -->

Metrics with the prefix `ddpjob_operator_` are exposed by the operator on its port `http`. Those with the prefix
`ddpjob_trainer_` are exposed by each worker process, on the ports `metrics-0`, `metrics-1`, ... of its pod, one per
local rank. Both expose metrics with the prefix `process_`. [monitoring.md](monitoring.md) describes scraping,
dashboards and alerts.

- The label `ddpjob` is the name of the job (`job` is Prometheus' own label). Series with a job's name disappear with
  the job, and no other label grows with the number of jobs. The label `metric` has at most 32 values per worker.
- To the metrics of a worker, Prometheus adds the labels `namespace`, `pod` and `node`, and `ddpjob` to `process_`
  metrics.
- A histogram has the series `_bucket`, `_sum` and `_count`. The client library adds `_created` to counters and
  histograms, except to those of training steps.
- Metrics of GPU memory exist only if the process computes on a GPU with CUDA.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """Unit of its values, "" for plain numbers."""
        base = self.name.removesuffix("_total")
        return next((unit for suffix, unit in _UNITS if base.endswith(suffix)), "")

    @property
    def line(self) -> str:
        """The row in Markdown."""
        labels = ", ".join(f"`{label}`" for label in self.labels)
        return f"| `{self.name}` | {self.kind} | {labels} | {self.unit} | {self.text.replace('|', '/')} |"


# Their help texts are the client library's, and on systems other than Linux they do not exist.
_PROCESS_ROWS: Final = (
    Row("process_resident_memory_bytes", "gauge", (), "Resident memory size."),
    Row("process_virtual_memory_bytes", "gauge", (), "Virtual memory size."),
    Row("process_cpu_seconds_total", "counter", (), "User and system CPU time that the process has used."),
    Row("process_start_time_seconds", "gauge", (), "Start time of the process."),
    Row("process_open_fds", "gauge", (), "Number of open file descriptors."),
    Row("process_max_fds", "gauge", (), "Maximum number of open file descriptors."),
)


def operator_text() -> str:
    """Exposition of an operator that has observed every metric once."""
    status = DDPJobStatus(
        phase=Phase.RUNNING,
        start_time=datetime(2026, 1, 1, tzinfo=UTC),
        nodes=Nodes(desired=2),
        failure=Failure(failure_class="Error", reason="ExitCode", message=""),
        progress=Progress(step=1, total_steps=2, loss=1.0, last_step_time=datetime(2026, 1, 1, tzinfo=UTC)),
    )
    metrics = Metrics()
    metrics.dropped("progress", "step")
    job = JobRecord("default", "digits", "uid", "1", 1, deleting=False, spec=None, status=status)
    metrics.read(Readings(jobs=(job,), watch_ages={"pods": lambda: 0.0}, namespaces=lambda: {"a": True}))
    metrics.request("create", "pods", "201")
    metrics.answered("create", "pods", 0.0)
    metrics.polls.labels("ok")
    return b"".join(metrics.parts()).decode()


def trainer_text() -> str:
    """Exposition of a worker process on a GPU, after an evaluation."""
    info = ProcessInfo(
        job="digits",
        rank=0,
        local_rank=0,
        node_rank=0,
        world_size=1,
        attempt=0,
        process_restarts=0,
        device="",
        backend="nccl",
        torch="",
    )
    gpu = GpuMemory(allocated=lambda: 0.0, reserved=lambda: 0.0, total=0.0)
    metrics = TrainerMetrics(info, gpu)
    metrics.show_evaluation({"f1": 0.0})
    return metrics.render()[1].decode()


def rows(text: str) -> list[Row]:
    """The metrics of an exposition, without those of the process."""
    return list(_rows(text_string_to_metric_families(text)))


def _rows(families: Iterable[Metric]) -> Iterator[Row]:
    for family in families:
        if family.name.endswith(_WITH_COUNTERS) or family.name.startswith(_OF_THE_PROCESS):
            continue
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        name = f"{family.name.removesuffix('_total')}_total" if family.type == "counter" else family.name
        yield Row(name, family.type, tuple(labels), family.documentation)


def metrics_page() -> str:
    """The page, in Markdown."""
    lines = [row.line for row in (*rows(operator_text()), *rows(trainer_text()), *_PROCESS_ROWS)]
    return "\n".join(
        [_INTRODUCTION, "| metric | type | labels | unit | meaning |", "|---|---|---|---|---|", *lines, ""]
    )
