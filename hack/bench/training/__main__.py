"""The benchmark: python -m hack.bench.training [--starts 12] [--out FILE]; ends with 1 where a goal is missed."""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hack.bench.training.report import PROCESSES, Hook, Measured, Pair, Saving, Scaling, missed, report
from hack.bench.training.statistics import LEAST_VALUES
from hack.cache import BUILD, ROOT, only_one
from hack.checks.torch_tests import TRAINER
from hack.cluster.engine import Engine, choose_engine
from hack.console import StepError, output_of, say
from hack.images.build import build_images

_LOG = BUILD / "log/training.log"
_PAIRS_OF_SCALE = 6
_VARIABLES = (
    "PYTHONPATH=/repo",
    "OMP_NUM_THREADS=1",
    # The most that glibc takes: no step gives memory back to the kernel only to take it again.
    "MALLOC_MMAP_THRESHOLD_=33554432",
    "MALLOC_TRIM_THRESHOLD_=1073741824",
)
# What the operator asks of the library in every pod.
_OPERATOR = ("DDPJOB_METRICS_PORT=9401", "DDPJOB_PROGRESS_FILE=/tmp/p", "DDPJOB_PROGRESS_DEADLINE_SECONDS=600")


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs programs of this folder in the trainer's image."""

    engine: Engine
    image: str

    def command(self, processes: int, program: str, *options: str) -> str:
        """A shell's command that starts a program under torchrun."""
        torchrun = f"python3 -m torch.distributed.run --nnodes 1 --nproc-per-node {processes}"
        meeting = "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0"
        return f"{torchrun} {meeting} -m hack.bench.training.{program} {' '.join(options)}"

    def run(self, script: str, *variables: str) -> list[dict[str, Any]]:
        """The objects that a shell's script has printed as JSON, each on a line of its own.

        Raises:
            StepError: it failed.
        """
        given = [part for variable in (*_VARIABLES, *variables) for part in ("-e", variable)]
        command = [self.engine.program, "run", "--rm", "--shm-size=1g", "-v", f"{ROOT}:/repo:ro", "-w", "/repo"]
        command += [*given, "--entrypoint", "sh", self.image, "-c", script]
        done = subprocess.run(
            command, env={**os.environ, **self.engine.environment}, capture_output=True, text=True, check=False
        )
        _LOG.parent.mkdir(parents=True, exist_ok=True)
        _LOG.write_text(f"{script}\n{done.stdout}{done.stderr}")
        if done.returncode != 0:
            raise StepError(f"{script} ended with {done.returncode}: see {_LOG}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def compare(bench: Bench, starts: int, pairs: int) -> list[list[Pair]]:
    """The bare loop and the library's by turns: pairs of each start."""
    found = list[list[Pair]]()
    for start in range(1, starts + 1):
        found.append([Pair(**pair) for pair in bench.run(bench.command(PROCESSES, "speed", str(pairs)), *_OPERATOR)])
        speed = median(pair.ratio for pair in found[-1])
        processors = median(pair.processors_ratio for pair in found[-1])
        say(
            f"  start {start} of {starts}: {speed:.3f} times the bare loop's speed, {processors:.3f} times its CPU time"
        )
    return found


def time_hook(bench: Bench) -> Hook:
    """The library's own work in addition to each step."""
    (found,) = bench.run(bench.command(1, "hook"), *_OPERATOR)
    say(f"  step hook: p50 {found['p50']:.0f} us, p99 {found['p99']:.0f} us, longest {found['max']:.0f} us")
    return Hook(found["steps"], found["p50"], found["p99"])


def time_saves(bench: Bench, processes: int, saves: int, *, asynchronous: bool) -> Saving:
    """How long saves keep a training from going on."""
    options = ["/tmp/saved", "--saves", str(saves), *(["--asynchronous"] if asynchronous else [])]  # noqa: S108 inside a container
    (found,) = bench.run(bench.command(processes, "saving", *options))
    saving = Saving(processes, asynchronous, **found)
    say(f"  {processes} process(es), asynchronous {asynchronous}: saves block {saving.share:.2%}")
    return saving


def scale(bench: Bench) -> Scaling:
    """The library's loop in one process, in two together, and in two that only share the machine."""

    def total(script: str) -> list[float]:
        return [float(pair["library"]) for pair in bench.run(script)]

    one = bench.command(1, "speed", str(_PAIRS_OF_SCALE))
    apart = " & ".join(f"BENCH_FIRST_CORE={core} {one}" for core in range(PROCESSES)) + " & wait"
    together = median(total(bench.command(PROCESSES, "speed", str(_PAIRS_OF_SCALE))))
    found = Scaling(median(total(one)), together, PROCESSES * median(total(apart)))
    say(f"  1 process {found.one:.0f}, 2 together {found.together:.0f}, 2 independent {found.apart:.0f} samples/s")
    return found


def main() -> None:
    """Measure, print the page that is kept in docs/, and say which goals are missed."""
    parser = argparse.ArgumentParser(prog="make bench-training")
    parser.add_argument(
        "--starts", type=int, default=12, help="starts of the processes that compare the two loops (%(default)s)"
    )
    parser.add_argument(
        "--pairs", type=int, default=6, help="pairs of the two loops in each, fifty steps each (%(default)s)"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of everything else (%(default)s)")
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--out", type=Path, help="file to write the page to")
    arguments = parser.parse_args()
    if arguments.starts < LEAST_VALUES:
        parser.error(f"--starts must be at least {LEAST_VALUES}, not {arguments.starts}: fewer have no interval")
    if arguments.pairs < 1:
        parser.error(f"--pairs must be at least 1, not {arguments.pairs}")
    engine = choose_engine(_LOG)
    with only_one("trainer image", say):
        bench = Bench(engine, build_images(engine, _LOG, [TRAINER])[TRAINER])
    load = os.getloadavg()[0]
    asked = engine.output("run", "--rm", bench.image, "python3", "-c", "import torch; print(torch.__version__)")
    found = Measured(
        compare(bench, arguments.starts, arguments.pairs),
        [time_hook(bench) for _ in range(arguments.runs)],
        [
            time_saves(bench, processes, arguments.saves, asynchronous=asynchronous)
            for processes in (1, PROCESSES)
            for asynchronous in (True, False)
        ],
        [scale(bench) for _ in range(arguments.runs)],
    )
    commit = (output_of(["git", "rev-parse", "--short", "HEAD"]) or "").strip()
    chosen = f"--starts {arguments.starts} --pairs {arguments.pairs} --runs {arguments.runs} --saves {arguments.saves}"
    cores = len(os.sched_getaffinity(0))
    page = report(found, commit=commit, command=chosen, load=load, cores=cores, torch=(asked or "").strip())
    say(page)
    if arguments.out is not None:
        arguments.out.write_text(page, encoding="utf-8")
    failed = missed(found)
    if failed:
        sys.exit(f"missed: {'; '.join(failed)}")


if __name__ == "__main__":
    try:
        main()
    except StepError as error:
        sys.exit(str(error))
