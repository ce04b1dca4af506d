"""The page of the benchmark, and whether its goals are met."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from hack.bench.training.statistics import Estimate, estimate
from hack.bench.training.turns import STEPS, TURNS_OF_A_PAIR

LEAST_RATIO: Final = 0.99
MOST_HOOK_P50: Final = 20.0
MOST_HOOK_P99: Final = 60.0
MOST_BLOCKED: Final = 0.01
PROCESSES: Final = 2
SAMPLES_A_STEP: Final = PROCESSES * 256
"""Of both processes (hack/bench/training/workload.py, which needs torch)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs, one right after the other: samples per second, and seconds of the ranks' processors."""

    bare: float
    library: float
    bare_processors: float
    library_processors: float

    @property
    def ratio(self) -> float:
        """The library's speed over the bare loop's."""
        return self.library / self.bare

    @property
    def processors_ratio(self) -> float:
        """The library's processor time over the bare loop's, for the same steps."""
        return self.library_processors / self.bare_processors


@dataclass(frozen=True, slots=True)
class Hook:
    """Microseconds of the library's own work per step."""

    steps: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Saving:
    """What saves took from a training."""

    processes: int
    asynchronous: bool
    bytes: int
    """Of the model; the optimizer has twice as many."""
    blocked: Sequence[float]
    """Milliseconds that each save kept the training from going on."""
    undisturbed: tuple[int, float]
    """Steps without saves, and their seconds."""
    disturbed: tuple[int, float]
    """Steps with saves, and the seconds of both."""

    @property
    def share(self) -> float:
        """Share of the time with saves during which the training is blocked."""
        return sum(self.blocked) / 1e3 / self.disturbed[1]

    @property
    def speed(self) -> float:
        """Steps per second with saves over those without: what is copied and written while it trains costs too."""
        (steps, seconds), (steps_without, seconds_without) = self.disturbed, self.undisturbed
        return steps / seconds / (steps_without / seconds_without)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Samples per second of one process, of two that train together, and of two independent ones."""

    one: float
    together: float
    apart: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was measured."""

    starts: Sequence[Sequence[Pair]]
    """Pairs of each start: a start places models and gradients elsewhere in memory, which makes either loop some
    percent slower for as long as its processes live. Pairs of one start do not tell this from what the library costs.
    """
    hooks: Sequence[Hook]
    saving: Sequence[Saving]
    scaling: Sequence[Scaling]

    @property
    def ratio(self) -> Estimate:
        """The library's speed over the bare loop's: of the middle pair of each start."""
        return estimate([median(pair.ratio for pair in pairs) for pairs in self.starts])

    @property
    def processors_ratio(self) -> Estimate:
        """The library's processor time over the bare loop's, likewise."""
        return estimate([median(pair.processors_ratio for pair in pairs) for pairs in self.starts])

    @property
    def pairs(self) -> list[Pair]:
        """Those of all starts."""
        return [pair for pairs in self.starts for pair in pairs]


def missed(found: Measured) -> list[str]:
    """The goals that are not met, each with what was measured."""
    hook = middle_hook(found.hooks)
    goals = [
        (found.ratio.median >= LEAST_RATIO, f"the library's loop has {found.ratio.median:.3f} of the bare one's speed"),
        (hook.p50 <= MOST_HOOK_P50, f"the step hook takes {hook.p50:.0f} us at p50"),
        (hook.p99 <= MOST_HOOK_P99, f"the step hook takes {hook.p99:.0f} us at p99"),
    ]
    goals += [
        (saving.share <= MOST_BLOCKED, f"asynchronous saves block {saving.share:.2%} of {saving.processes} process(es)")
        for saving in found.saving
        if saving.asynchronous
    ]
    return [text for met, text in goals if not met]


def middle_hook(hooks: Sequence[Hook]) -> Hook:
    """The medians of some runs: a machine that does something else meanwhile delays single steps, not most runs."""
    return Hook(hooks[0].steps, median(each.p50 for each in hooks), median(each.p99 for each in hooks))


def report(found: Measured, *, commit: str, command: str, load: float, cores: int, torch: str) -> str:
    """The page, in Markdown.

    Args:
        found: what was measured.
        commit: of the repository.
        command: options of the benchmark.
        load: average of runnable processes over a minute, before the first run.
        cores: of the machine.
        torch: version.
    """
    hook, ratio, processors = middle_hook(found.hooks), found.ratio, found.processors_ratio
    one, together, apart = (
        median(getattr(each, name) for each in found.scaling) for name in ("one", "together", "apart")
    )
    failed = missed(found)
    speed = (
        f"| speed of the library's loop relative to a bare loop, 2 processes, median of {ratio.count} starts of "
        f"{len(found.starts[0])} interleaved pairs (95 % interval) | {ratio.median:.3f} ({ratio.low:.3f} to "
        f"{ratio.high:.3f}) | at least {LEAST_RATIO} |"
    )
    processor_time = (
        "| CPU time of the same pairs, the library's relative to the bare loop's (95 % interval) | "
        f"{processors.median:.3f} ({processors.low:.3f} to {processors.high:.3f}): "
        f"{_microseconds(found):+.0f} us per step | |"
    )
    hooks = (
        f"| all of the library's own work per step, {hook.steps} steps, p50 / p99, median of {len(found.hooks)} "
        f"runs | {hook.p50:.0f} / {hook.p99:.0f} us | at most {MOST_HOOK_P50:.0f} / {MOST_HOOK_P99:.0f} us |"
    )
    scaling = (
        f"| scaling from 1 process to 2, median of {len(found.scaling)} runs | {together / one:.2f} times the "
        f"samples per second; two independent processes reach {apart / one:.2f} times | |"
    )
    lines = [
        "# Overhead of the trainer library",
        "",
        f'`make bench-training ARGS="{command}"` at commit `{commit}`, torch {torch}, {cores} cores, gloo,',
        f"load average {load:.1f} before the first run: "
        + (f"missed: {'; '.join(failed)}." if failed else "all goals are met."),
        "",
        "| | measured | goal |",
        "|---|---|---|",
        speed,
        processor_time,
        hooks,
        *(_saving_row(saving) for saving in found.saving),
        scaling,
        "",
        f"A step of the compared loops takes {_milliseconds(found):.0f} ms; each rank is pinned to its own core.",
        "The bare loop is `hack/bench/training/bare.py`: DDP, DataLoader, DistributedSampler, the loss printed every",
        "10 steps. The library's has progress, metrics, watchdog, agreed stop, and the loss and gradient norm every",
        "10 steps. They alternate every 10 steps in the same processes under torchrun; a pair is five turns of each.",
        "Each start has new processes: where their memory lies makes one of the loops some percent slower than the",
        "other, as it does with two bare loops.",
        "In all of these measurements glibc is set to keep its memory (`_VARIABLES` in",
        "`hack/bench/training/__main__.py`): otherwise it randomly returns some during a step and takes it back, which",
        "costs either loop up to a third.",
    ]
    return "\n".join(lines) + "\n"


def _saving_row(saving: Saving) -> str:
    kind = "asynchronous" if saving.asynchronous else "synchronous"
    processes = "1 process" if saving.processes == 1 else f"{saving.processes} processes"
    goal = f"at most {MOST_BLOCKED:.0%}" if saving.asynchronous else ""
    return (
        f"| training blocked by {kind} saves, one every 2 s, model of {saving.bytes / 1e6:.0f} MB with AdamW, "
        f"{processes}, {len(saving.blocked)} saves | {saving.share:.2%} (median {median(saving.blocked):.0f} ms, "
        f"longest {max(saving.blocked):.0f} ms); {saving.speed:.2f} times the steps per second without saves "
        f"| {goal} |"
    )


def _microseconds(found: Measured) -> float:
    more = median(pair.library_processors - pair.bare_processors for pair in found.pairs)
    return more / PROCESSES / (TURNS_OF_A_PAIR * STEPS) * 1e6


def _milliseconds(found: Measured) -> float:
    from_samples = median(pair.bare for pair in found.pairs)
    return SAMPLES_A_STEP / from_samples * 1e3
