"""The metrics of one training process, for Prometheus; those that a step changes are in step_totals."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ddpjob_trainer.observability.step_totals import StepTotals

_PREFIX: Final = "ddpjob_trainer"
# "job" is Prometheus' own label: it names the scrape configuration.
_LABELS: Final = ("ddpjob", "rank")
_CHECKPOINT_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What identifies a process and stays constant while it runs."""

    job: str
    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    attempt: int
    process_restarts: int
    """How often torchrun has restarted the processes within the attempt."""
    device: str
    backend: str
    torch: str
    """Version of torch."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory of the process' GPU in bytes, read at each scrape without waiting for the GPU."""

    allocated: Callable[[], float]
    """Occupied by tensors."""
    reserved: Callable[[], float]
    """Reserved by torch, occupied or cached."""
    total: float
    """Installed in the GPU."""


class TrainerMetrics:
    """Every metric with the labels `ddpjob` (name of the job) and `rank` filled in."""

    def __init__(self, info: ProcessInfo, gpu: GpuMemory | None = None) -> None:
        """Args:
        info: the process.
        gpu: memory of its GPU; None on a CPU, which has no such metrics.
        """
        self._registry = CollectorRegistry()
        self._values = (info.job, str(info.rank))
        self.epoch = self._gauge("epoch", "Epoch in progress, counted from 1.")
        self.planned_epochs = self._gauge("planned_epochs", "Epochs planned for the training.")
        self.planned_steps = self._gauge("planned_steps", "Optimizer steps planned for the training.")
        self.loss = self._gauge("loss", "Training loss on the last log step, mean over all ranks.")
        self.learning_rate = self._gauge("learning_rate", "Learning rate of the first parameter group.")
        self.gradient_norm = self._gauge("gradient_norm", "L2 norm of all gradients on the last log step.")
        self.accuracy = self._gauge("accuracy_ratio", "Accuracy of the last evaluation, from 0 to 1.")
        self._evaluation = Gauge(
            f"{_PREFIX}_evaluation",
            "What the last evaluation has found, by the name that the program gives it.",
            (*_LABELS, "metric"),
            registry=self._registry,
        )
        self.samples_per_second = self._gauge("samples_per_second", "Samples per second of all ranks together.")
        self.checkpoint_step = self._gauge("last_checkpoint_step", "Step of the last checkpoint saved or resumed from.")
        self.checkpoint_time = self._gauge(
            "last_checkpoint_timestamp_seconds",
            "When this process last saved a checkpoint, in Unix time; 0 if never.",
        )
        self.not_finite = Counter(
            f"{_PREFIX}_not_finite",
            "How often a loss, a gradient or the state was found not to be finite.",
            _LABELS,
            registry=self._registry,
        ).labels(*self._values)
        self.steps = StepTotals(_PREFIX, _LABELS, self._values)
        self._registry.register(self.steps)
        self.checkpoint_seconds = self._histogram(
            "checkpoint_duration_seconds", "Seconds that training paused for a checkpoint.", _CHECKPOINT_BUCKETS
        )
        self._gauge("world_size", "Processes of the training.").set(info.world_size)
        restarts = self._gauge("process_restarts", "Restarts of the processes by torchrun within this attempt.")
        restarts.set(info.process_restarts)
        self._process_info(info)
        if gpu is not None:
            self._gpu_memory(gpu)
        # Memory, CPU seconds and open files of the process, under the names that every Prometheus client uses.
        ProcessCollector(registry=self._registry)

    def render(self) -> tuple[str, bytes]:
        """Content type and text of all metrics, for a scrape."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def show_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Show the numbers of an evaluation by their names, instead of those before."""
        self._evaluation.clear()
        for name, value in metrics.items():
            self._evaluation.labels(*self._values, name).set(value)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, _LABELS, registry=self._registry).labels(*self._values)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(f"{_PREFIX}_{name}", text, _LABELS, registry=self._registry, buckets=buckets)
        return family.labels(*self._values)

    def _gpu_memory(self, gpu: GpuMemory) -> None:
        allocated = self._gauge("gpu_memory_allocated_bytes", "GPU memory occupied by tensors.")
        allocated.set_function(gpu.allocated)
        reserved = self._gauge("gpu_memory_reserved_bytes", "GPU memory reserved by torch, occupied or cached.")
        reserved.set_function(gpu.reserved)
        self._gauge("gpu_memory_total_bytes", "Total memory of the GPU.").set(gpu.total)

    def _process_info(self, info: ProcessInfo) -> None:
        values = {
            "local_rank": str(info.local_rank),
            "node_rank": str(info.node_rank),
            "attempt": str(info.attempt),
            "device": info.device,
            "backend": info.backend,
            "python_version": platform.python_version(),
            "torch_version": info.torch,
        }
        family = Gauge(
            f"{_PREFIX}_process_info",
            "Always 1; its labels describe the process.",
            (*_LABELS, *values),
            registry=self._registry,
        )
        family.labels(*self._values, *values.values()).set(1)
