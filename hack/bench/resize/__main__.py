"""The benchmark: python -m hack.cluster.session hack.bench.resize [--runs 20] [--restarts 5]."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.bench.recovery.__main__ import Bench, apply, set_up, wait_for
from hack.bench.recovery.manifests import JOB, NODES, PROCESSES, job
from hack.bench.recovery.marks import recovery_after
from hack.bench.resize.report import Change, Sample, page
from hack.console import StepError, output_of, say

_PATIENCE: Final = 120.0
_WARM_SECONDS: Final = 5.0


def measured(bench: Bench, nodes: int, change: Callable[[Bench, int], None]) -> Sample:
    """Change the size, and wait until all ranks make steps at the new one.

    Raises:
        StepError: they do not.
    """
    time.sleep(_WARM_SECONDS)
    at, ranks = time.time(), nodes * PROCESSES
    change(bench, nodes)
    if not wait_for(lambda: recovery_after(bench.marks, at, ranks) is not None, _PATIENCE):
        raise StepError(f"the job does not train on {nodes} nodes within {_PATIENCE:.0f} s")
    sample = Sample.of(at, bench.marks, ranks)
    say(f"  {nodes} nodes: {sample.total:.1f} s, interrupted for {sample.interrupted:.1f} s")
    return sample


def scale(bench: Bench, nodes: int) -> None:
    """Change the size as a person does.

    Raises:
        StepError: the API server refuses.
    """
    if output_of([*bench.kubectl, "scale", f"ddpjob/{JOB}", f"--replicas={nodes}"]) is None:
        raise StepError(f"the job cannot be scaled to {nodes} nodes")


def restart(bench: Bench, nodes: int) -> None:
    """Change the size without spec.elastic: suspend the job, change it, resume it."""
    _set(bench, '{"spec":{"suspend":true}}')
    output_of([*bench.kubectl, "wait", f"ddpjob/{JOB}", "--for=condition=Suspended", "--timeout=60s"], timeout=90)
    scale(bench, nodes)
    _set(bench, '{"spec":{"suspend":false}}')


def _set(bench: Bench, change: str) -> None:
    if output_of([*bench.kubectl, "patch", "ddpjob", JOB, "--type=merge", "-p", change]) is None:
        raise StepError(f"the job cannot be changed: {change}")


def repeat(
    bench: Bench, runs: int, change: Callable[[Bench, int], None], *, elastic: bool
) -> dict[Change, list[Sample]]:
    """Shrink and grow again and again, from a training without earlier marks."""
    bench.stop()
    manifest = job(bench.folder)
    if elastic:
        manifest["spec"]["elastic"] = {"maxNodes": NODES}
    apply(bench.cluster, [manifest])
    bench.warm_up(0.0)
    found: dict[Change, list[Sample]] = {Change.SHRINK: [], Change.GROW: []}
    for _ in range(runs):
        found[Change.SHRINK].append(measured(bench, NODES - 1, change))
        found[Change.GROW].append(measured(bench, NODES, change))
    bench.stop()
    return found


def main() -> None:
    """Run it, and print the page that is kept in docs/."""
    parser = argparse.ArgumentParser(prog="make bench-resize")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=5, help="runs by suspending and resuming (%(default)s)")
    parser.add_argument("--out", type=Path, help="file to write the page to")
    arguments = parser.parse_args()
    with set_up() as (bench, _):
        in_place = repeat(bench, arguments.runs, scale, elastic=True)
        restarted = repeat(bench, arguments.restarts, restart, elastic=False)
    commit = (output_of(["git", "rev-parse", "--short", "HEAD"]) or "").strip()
    text = page(in_place, restarted, commit, f"--runs {arguments.runs} --restarts {arguments.restarts}")
    say(text)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except StepError as error:
        sys.exit(str(error))
