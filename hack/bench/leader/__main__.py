"""The benchmark: python -m hack.cluster.session hack.bench.leader [--runs 10] [--seconds 60]."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median

from hack.bench.leader.replicas import OVERLAY, Replicas
from hack.cluster.deploy import deploy, kubectl
from hack.cluster.engine import choose_engine
from hack.cluster.kind import LOG
from hack.console import StepError, say

_MIB = 1024 * 1024


def measure(replicas: Replicas, end: Callable[[str], float], runs: int) -> list[float]:
    """Seconds from the end of the leader to the next one's Lease."""
    taken = []
    for _ in range(runs):
        replicas.wait_until_ready()
        leader = replicas.holder()
        at = end(leader)
        _, seen = replicas.wait_for_other(leader)
        taken.append(seen - at)
        say(f"{leader}: replaced after {taken[-1]:.1f} s")
    return taken


def cost(replicas: Replicas, seconds: float) -> list[str]:
    """What each replica has used in so many seconds, a row of a table each."""
    replicas.wait_until_ready()
    names = [pod["metadata"]["name"] for pod in replicas.pods()]
    before = {name: replicas.metrics(name) for name in names}
    time.sleep(seconds)
    rows = []
    for name in names:
        after = replicas.metrics(name)
        used = {series: after[series] - before[name].get(series, 0.0) for series in after}

        leads = any(value for series, value in after.items() if series.startswith("ddpjob_operator_leading"))
        role = "leader" if leads else "standby"
        rows.append(
            f"| {role} | {requests(used, 'watch'):.0f} | {requests(used, 'list', 'get'):.0f} "
            f"| {requests(used, 'create', 'update', 'delete'):.0f} "
            f"| {100 * used['process_cpu_seconds_total'] / seconds:.1f} % "
            f"| {after['process_resident_memory_bytes'] / _MIB:.0f} MiB |"
        )
    return sorted(rows)


def requests(used: Mapping[str, float], *verbs: str) -> float:
    """How many requests of these verbs were answered."""
    wanted = [f'verb="{verb}"' for verb in verbs]
    return sum(
        value
        for series, value in used.items()
        if series.startswith("ddpjob_operator_api_requests_total") and any(verb in series for verb in wanted)
    )


def main() -> int:
    """Measure and print; the operator has one replica again after that."""
    parser = argparse.ArgumentParser(prog="hack.bench.leader")
    parser.add_argument("--runs", type=int, default=10, help="how often the leader ends in each way (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the cost is measured (%(default)s)")
    arguments = parser.parse_args()
    deploy(overlay=OVERLAY)
    try:
        replicas = Replicas(choose_engine(LOG))
        costs = cost(replicas, arguments.seconds)
        killed = measure(replicas, replicas.kill, arguments.runs)
        stopped = measure(replicas, replicas.stop, arguments.runs)
    except StepError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        deploy()
        kubectl("-n", "ddpjob-system", "delete", "poddisruptionbudget", "ddpjob-operator", "--ignore-not-found")
    print("| the leader | runs | median | longest |\n|---|---|---|---|")
    for what, taken in (("is killed with its pod", killed), ("is asked to stop (SIGTERM)", stopped)):
        print(f"| {what} | {len(taken)} | {median(taken):.1f} s | {max(taken):.1f} s |")
    print("\n| | watches | reads | writes | CPU | memory |\n|---|---|---|---|---|---|")
    print("\n".join(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
