"""The dashboard of one job: its progress and speed, which rank slows down the others, and what went wrong."""

from collections.abc import Mapping
from typing import Final

from hack.generate.monitoring.panels import Annotation, Dashboard, Panel, Query, Row, Show

_JOB: Final = 'namespace="$namespace", ddpjob="$ddpjob"'
_RATE: Final = "[$__rate_interval]"


def _trainer(metric: str, **labels: str) -> str:
    return f"ddpjob_trainer_{metric}{{{_selector(labels)}}}"


def _operator(metric: str, **labels: str) -> str:
    return f"ddpjob_operator_job_{metric}{{{_selector(labels)}}}"


def _selector(labels: Mapping[str, str]) -> str:
    return ", ".join([_JOB, *(f'{name}=~"{pattern}"' for name, pattern in labels.items())])


def _rate(metric: str) -> str:
    return f"rate({_trainer(metric)}{_RATE})"


def _of_process(expression: str) -> str:
    """A value of the process, labelled with its rank, which `process_` metrics do not have."""
    info = _trainer("process_info")
    return f"max by (rank) ({expression} * on (namespace, pod, instance) group_left (rank) {info})"


def _quantile(quantile: float, metric: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le) ({_rate(f'{metric}_bucket')}))"


def _restarts(kinds: str, window: str) -> str:
    return f"sum by (kind) (increase({_operator('restarts_total', kind=kinds)}[{window}]))"


_OWN_WORK: Final = f"sum by (rank) ({_rate('local_seconds_total')})"
_LAST_STEP: Final = _trainer("last_step_timestamp_seconds")

_STATE: Final = Row(
    "State",
    (
        Panel(
            title="Phase",
            text="Phase of the job, as in `kubectl get ddpjobs`.",
            unit="none",
            show=Show.NAME,
            width=4,
            queries=(Query(f"{_operator('phase')} == 1", "{{phase}}"),),
        ),
        Panel(
            title="Progress",
            text="Share of the planned optimizer steps that are done, from the job's status.",
            unit="percentunit",
            show=Show.VALUE,
            width=4,
            most=1,
            queries=(Query(f"max({_operator('progress_ratio')})", "progress"),),
        ),
        Panel(
            title="Time left",
            text="Time for the remaining steps at the speed of the last few minutes.",
            unit="s",
            show=Show.VALUE,
            width=4,
            queries=(
                Query(
                    f"(max({_trainer('planned_steps')}) - max({_trainer('step')})) / max({_rate('steps_total')} > 0)",
                    "left",
                ),
            ),
        ),
        Panel(
            title="Restarts",
            text="Restarts of all pods (counted against the budget, or ignored) and of the worker processes in "
            "running pods (process).",
            unit="none",
            show=Show.VALUE,
            width=4,
            queries=(Query(f"max by (kind) ({_operator('restarts_total')})", "{{kind}}"),),
        ),
        Panel(
            title="Last failure",
            text="Class of the root cause that ended the last attempt; none once the job has succeeded. "
            "`kubectl describe ddpjob` shows the details.",
            unit="none",
            show=Show.NAME,
            width=4,
            queries=(Query(f"{_operator('failure')} == 1", "{{class}}"),),
        ),
        Panel(
            title="Stalled",
            text="Whether the job has completed no step for longer than spec.progressDeadline.",
            unit="bool_yes_no",
            show=Show.VALUE,
            width=4,
            queries=(Query(f"max({_operator('stalled')})", "stalled"),),
        ),
    ),
)
# These gauges are 0 until their value is known: the lines begin with the first known value.
_LEARNING: Final = Row(
    "Learning",
    (
        Panel(
            title="Loss",
            text="Training loss on log steps, averaged over all ranks.",
            unit="none",
            queries=(Query(f"max({_trainer('loss', rank='0')} != 0)", "loss"),),
        ),
        Panel(
            title="Steps",
            text="Optimizer steps done and planned. After a restart the line continues from the last checkpoint.",
            unit="none",
            queries=(
                Query(f"max({_trainer('step')})", "done"),
                Query(f"max({_trainer('planned_steps')} > 0)", "planned"),
            ),
        ),
        Panel(
            title="Throughput",
            text="Samples per second over all ranks.",
            unit="suffix: samples/s",
            queries=(Query(f"sum({_rate('samples_total')})", "all ranks"),),
        ),
        Panel(
            title="Accuracy",
            text="Accuracy of the last evaluation.",
            unit="percentunit",
            most=1,
            queries=(Query(f"max({_trainer('accuracy_ratio')} > 0)", "accuracy"),),
        ),
        Panel(
            title="Evaluation",
            text="What the last evaluation has found, by the names that the program gives it.",
            unit="none",
            queries=(Query(f"max by (metric) ({_trainer('evaluation')})", "{{metric}}"),),
        ),
        Panel(
            title="Gradient norm",
            text="L2 norm of all gradients on log steps. If it keeps growing, the training diverges.",
            unit="none",
            queries=(Query(f"max({_trainer('gradient_norm')} > 0)", "norm"),),
        ),
        Panel(
            title="Learning rate",
            text="Learning rate of the first parameter group.",
            unit="sci",
            queries=(Query(f"max({_trainer('learning_rate')} > 0)", "learning rate"),),
        ),
    ),
)
_RANKS: Final = Row(
    "Steps and ranks",
    (
        Panel(
            title="Step time",
            text="Time from one optimizer step to the next, over all ranks: median and 99th percentile.",
            unit="s",
            queries=(
                Query(_quantile(0.5, "step_duration_seconds"), "p50"),
                Query(_quantile(0.99, "step_duration_seconds"), "p99"),
            ),
        ),
        Panel(
            title="Own work of each rank (straggler)",
            text="Share of the time that a rank spends without needing the others: waiting for its data, and the "
            "forward pass. All ranks wait for the one with the largest share. On a GPU, only the time to queue the "
            "forward pass counts.",
            unit="percentunit",
            queries=(Query(_OWN_WORK, "rank {{rank}}"),),
        ),
        Panel(
            title="Slow rank",
            text="How many times as long as the others a rank takes for its own part of a step, while it slows them "
            "down. Only for programs that train with ddpjob_trainer.",
            unit="none",
            queries=(
                Query(
                    f"max by (rank, node, what) ({_operator('slowest_rank_factor')})",
                    "rank {{rank}} on {{node}}: {{what}}",
                ),
            ),
        ),
        Panel(
            title="Data wait",
            text="Share of the time that a rank waits for its data loader.",
            unit="percentunit",
            queries=(Query(f"sum by (rank) ({_rate('data_wait_seconds_total')})", "rank {{rank}}"),),
        ),
        Panel(
            title="Rank spread",
            text="Difference between the largest and the smallest share of own work: the share of the time "
            "that the other ranks lose by waiting.",
            unit="percentunit",
            queries=(Query(f"max({_OWN_WORK}) - min({_OWN_WORK})", "largest - smallest"),),
        ),
        Panel(
            title="Time since the last step",
            text="Time since the last step at each scrape, by the clock of the rank and that of Prometheus. While one "
            "rank hangs, it grows on all ranks.",
            unit="s",
            # The time of the scrape, because no two ranks are scraped at the same time; 0 means no step yet.
            queries=(Query(f"max by (rank) (timestamp({_LAST_STEP}) - ({_LAST_STEP} > 0))", "rank {{rank}}"),),
        ),
        Panel(
            title="Ranks and pods",
            text="Ranks that are scraped, ranks of the training, and pods whose trainer container is running.",
            unit="none",
            queries=(
                Query(f"count({_trainer('step')})", "ranks scraped"),
                Query(f"max({_trainer('world_size')})", "ranks"),
                Query(f"max({_operator('nodes', state='ready')})", "running pods"),
            ),
        ),
    ),
)
_FAULTS: Final = Row(
    "Checkpoints and restarts",
    (
        Panel(
            title="Checkpoint duration",
            text="Mean time that training was blocked by a checkpoint, for the rank that waited longest.",
            unit="s",
            queries=(
                Query(
                    f"max({_trainer('checkpoint_duration_seconds_sum')} / "
                    f"({_trainer('checkpoint_duration_seconds_count')} > 0))",
                    "mean",
                ),
            ),
        ),
        Panel(
            title="Steps at risk",
            text="Steps since the last checkpoint, which a failure now would lose.",
            unit="suffix: steps",
            queries=(Query(f"max({_trainer('step')}) - max({_trainer('last_checkpoint_step')})", "not saved"),),
        ),
        Panel(
            title="Restarts over time",
            text="Restarts of all pods (counted, ignored) and of the worker processes in running pods (process).",
            unit="none",
            show=Show.BARS,
            queries=(Query(_restarts(".+", "$__rate_interval"), "{{kind}}"),),
        ),
    ),
)
_RESOURCES: Final = Row(
    "Resources",
    (
        Panel(
            title="CPU memory",
            text="Resident memory of each worker process, excluding its data loader processes.",
            unit="bytes",
            queries=(Query(_of_process('process_resident_memory_bytes{namespace="$namespace"}'), "rank {{rank}}"),),
        ),
        Panel(
            title="CPU time",
            text="Number of CPUs that each worker process uses.",
            unit="suffix: CPUs",
            queries=(
                Query(
                    _of_process(f'rate(process_cpu_seconds_total{{namespace="$namespace"}}{_RATE})'), "rank {{rank}}"
                ),
            ),
        ),
        Panel(
            title="GPU memory",
            text="GPU memory held by tensors, and reserved by torch. Not available without GPUs.",
            unit="bytes",
            queries=(
                Query(f"max by (rank) ({_trainer('gpu_memory_allocated_bytes')})", "rank {{rank}} allocated"),
                Query(f"max by (rank) ({_trainer('gpu_memory_reserved_bytes')})", "rank {{rank}} reserved"),
            ),
        ),
    ),
)

JOB_DASHBOARD: Final = Dashboard(
    uid="ddpjob-job",
    title="ddpjob / Job",
    text="One DDPJob: progress, speed, ranks, checkpoints, restarts and resources.",
    rows=(_STATE, _LEARNING, _RANKS, _FAULTS, _RESOURCES),
    annotations=(
        Annotation("Restart of all pods", f"{_restarts('counted|ignored', '1m')} > 0", "red"),
        Annotation("Restart of worker processes", f"{_restarts('process', '1m')} > 0", "orange"),
    ),
)
