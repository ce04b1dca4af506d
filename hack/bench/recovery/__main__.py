"""The benchmark: python -m hack.cluster.session hack.bench.recovery [--runs 20] [--faults process,spare,pod]."""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from hack.bench.recovery.faults import OF_ELASTIC, OF_PROCESSES, TITLES, Fault, FaultError, Injector
from hack.bench.recovery.floor import Floor, measure_floor
from hack.bench.recovery.manifests import JOB, NAMESPACE, NODES, PLAIN, PROCESSES, job, plain, setting
from hack.bench.recovery.marks import Mark, newest_steps, read_marks, recovery_after
from hack.bench.recovery.report import PLAIN_PATIENCE, Sample, report
from hack.bench.recovery.watch import PodTimes, Watch
from hack.cluster.deploy import deploy
from hack.cluster.engine import choose_engine
from hack.cluster.kind import LOG, Cluster, ensure_cluster
from hack.console import StepError, output_of, say

RANKS = NODES * PROCESSES
_WARM_STEPS = 25
_PATIENCE = 180.0
_LOOK_EVERY = 0.1
# Seconds that the processes of a spare node take to load torch, one after the other.
_SPARE_LOADS = 15.0


@dataclass(frozen=True, slots=True)
class Bench:
    """One training on the cluster, under the operator or plain, and what can be done to it."""

    cluster: Cluster
    injector: Injector
    shared: Path
    managed: bool

    @property
    def kubectl(self) -> list[str]:
        """The beginning of a command in the benchmark's namespace."""
        return [*self.cluster.kubectl, "-n", NAMESPACE]

    @property
    def marks(self) -> list[Mark]:
        """All marks so far."""
        return read_marks(self.shared / self.folder)

    @property
    def folder(self) -> str:
        """Folder of the marks."""
        return f"marks-{'job' if self.managed else 'plain'}"

    def start(self, fault: Fault) -> None:
        """Have it train again, from the start, as this fault wants to find it."""
        self.stop()
        spares, survives = int(fault is Fault.SPARE), fault is not Fault.RESTART
        whole = job(
            self.folder,
            spares=spares,
            survives=survives,
            elastic=fault in OF_ELASTIC,
            spare_nodes=int(fault is Fault.SPARE_NODE),
        )
        objects = [whole] if self.managed else plain(self.folder)
        apply(self.cluster, objects)
        self.warm_up(0.0, spare_node=fault is Fault.SPARE_NODE)

    def stop(self) -> None:
        """Remove it and its marks."""
        kinds = [f"ddpjob/{JOB}"] if self.managed else [f"statefulset/{PLAIN}", f"service/{PLAIN}"]
        output_of([*self.kubectl, "delete", *kinds, "--ignore-not-found", "--wait=true"], timeout=120)
        selector = f"ddpjob.dev/job={JOB}" if self.managed else f"app={PLAIN}"
        output_of([*self.kubectl, "delete", "pods", "-l", selector, "--force", "--grace-period=0"], timeout=120)
        shutil.rmtree(self.shared / self.folder, ignore_errors=True)
        if not self.managed:
            shutil.rmtree(self.shared / "plain-checkpoints", ignore_errors=True)

    def warm_up(self, since: float, *, spare_node: bool = False) -> None:
        """Wait until every rank has made some steps, and with them checkpoints, since a moment.

        Args:
            since: the moment.
            spare_node: whether a spare node is waited for as well, and its processes with it.

        Raises:
            StepError: it does not train.
        """

        def warm() -> bool:
            steps: dict[int, int] = {}
            for mark in self.marks:
                if mark.what == "step" and mark.at > since:
                    steps[mark.rank] = steps.get(mark.rank, 0) + 1
            return len(steps) == RANKS and min(steps.values()) >= _WARM_STEPS

        if not wait_for(warm, _PATIENCE):
            raise StepError(f"the training is not making progress: kubectl -n {NAMESPACE} get pods,ddpjobs")
        if spare_node:
            ready = ["wait", "--for=condition=SpareNodesReady", f"ddpjob/{JOB}", "--timeout=120s"]
            if output_of([*self.kubectl, *ready], timeout=150) is None:
                raise StepError(f"no spare node: kubectl -n {NAMESPACE} describe ddpjob {JOB}")
            time.sleep(_SPARE_LOADS)

    def pods(self) -> list[str]:
        """The pods that train, ordinal 0 first."""
        selector = f"ddpjob.dev/job={JOB},ddpjob.dev/ordinal" if self.managed else f"app={PLAIN}"
        text = output_of(
            [*self.kubectl, "get", "pods", "-l", selector, "--field-selector=status.phase=Running", "-o", "name"]
        )
        return sorted(line.removeprefix("pod/") for line in (text or "").split())

    def inject(self, fault: Fault, patience: float) -> Sample:
        """Inject a fault and wait until all ranks complete steps again.

        Raises:
            FaultError: it could not be injected.
        """
        watch = Watch(self.kubectl)
        try:
            pod = self.pods()[-1]
            time.sleep(1)
            at = self._do(fault, pod)
            wait_for(lambda: recovery_after(self.marks, at, RANKS) is not None, patience)
            found = recovery_after(self.marks, at, RANKS)
            # A spare that is created afterwards has no part in it.
            newer = [] if fault is Fault.SPARE_NODE else _newer_pods(watch, at)
            return Sample.of(at, found, newer, _older_pods(watch, at), _next_attempt(watch, at))
        finally:
            watch.close()

    def _do(self, fault: Fault, pod: str) -> float:
        process = newest_steps(self.marks)[RANKS - 1].pid
        if fault in OF_PROCESSES:
            return self.injector.signal_process(pod, process, signal.SIGKILL)
        if fault is Fault.HANG:
            return self.injector.signal_process(pod, process, signal.SIGSTOP)
        return self.injector.delete_pod(pod)


def _newer_pods(watch: Watch, at: float) -> list[PodTimes]:
    return [times for times in watch.seen.pods.values() if times.created > at]


def _older_pods(watch: Watch, at: float) -> list[PodTimes]:
    return [times for times in watch.seen.pods.values() if 0 < times.created <= at]


def _next_attempt(watch: Watch, at: float) -> float | None:
    return min((moment for moment in watch.seen.attempts.values() if moment > at), default=None)


def lose_node(bench: Bench, patience: float) -> tuple[Sample, float]:
    """Freeze the node of a pod that does not carry the operator; the recovery, counted from when it is marked lost.

    Returns:
        The sample, and the seconds until the control plane marked the node.

    Raises:
        FaultError: no pod is on such a node.
    """
    bench.start(Fault.NODE)
    system = [*bench.cluster.kubectl, "-n", "ddpjob-system", "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]
    operator = (output_of(system) or "").split()
    placed = json.loads(output_of([*bench.kubectl, "get", "pods", "-o", "json"]) or "{}").get("items", [])
    node = next((pod["spec"]["nodeName"] for pod in placed if pod["spec"].get("nodeName") not in operator), None)
    if node is None:
        raise FaultError("all pods are on the operator's node")
    watch = Watch(bench.kubectl)
    try:
        time.sleep(1)
        at = bench.injector.stop_node(node)
        wait_for(lambda: any(times.not_ready > at for times in watch.seen.pods.values()), patience)
        marked = min((t.not_ready for t in watch.seen.pods.values() if t.not_ready > at), default=at)
        wait_for(lambda: recovery_after(bench.marks, at, RANKS) is not None, patience)
        found = recovery_after(bench.marks, at, RANKS)
        sample = Sample.of(marked, found, _newer_pods(watch, at), [], _next_attempt(watch, at))
        return sample, marked - at
    finally:
        watch.close()
        bench.injector.start_node(node)


def wait_for(holds: Callable[[], bool], patience: float) -> bool:
    """Whether something came to hold in time."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def apply(cluster: Cluster, objects: list[dict[str, object]]) -> None:
    """Apply objects.

    Raises:
        StepError: the API server refuses them.
    """
    done = subprocess.run(
        [*cluster.kubectl, "apply", "-f", "-"],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StepError(f"kubectl apply: {done.stderr.strip()}")


def volume_on_host(cluster: Cluster) -> Path:
    """The host's folder of the benchmark's claim.

    Raises:
        StepError: the claim is not bound.
    """
    command = [*cluster.kubectl, "-n", NAMESPACE, "get", "pvc", "shared", "-o", "jsonpath={.spec.volumeName}"]
    if not wait_for(lambda: bool(output_of(command)), 30):
        raise StepError("the claim shared is not bound: kubectl get pv")
    return cluster.shared / (output_of(command) or "").rpartition("-")[2]


@contextmanager
def set_up() -> Iterator[tuple[Bench, Bench]]:
    """The training under the operator and the plain one, on a cluster with all that they need; removed at the end."""
    engine = choose_engine(LOG)
    cluster = ensure_cluster(engine, LOG)
    deploy()
    apply(cluster, setting())
    try:
        shared = volume_on_host(cluster)
        injector = Injector([*cluster.kubectl, "-n", NAMESPACE], engine)
        yield Bench(cluster, injector, shared, managed=True), Bench(cluster, injector, shared, managed=False)
    finally:
        output_of([*cluster.kubectl, "delete", "namespace", NAMESPACE, "--wait=true"], timeout=180)


def repeat(bench: Bench, fault: Fault, runs: int, patience: float) -> list[Sample]:
    """The same fault again and again, each after the training has warmed up; ends early where it does not come back."""
    samples: list[Sample] = []
    bench.start(fault)
    for run in range(runs):
        sample = bench.inject(fault, patience)
        samples.append(sample)
        who = "ddpjob" if bench.managed else "plain torchrun"
        took = f"{sample.total:.1f} s" if sample.total is not None else f"not within {patience:.0f} s"
        say(f"  {TITLES[fault]}, {who}, {run + 1} of {runs}: {took}")
        if sample.total is None:
            bench.start(fault)
        else:
            bench.warm_up(time.time(), spare_node=fault is Fault.SPARE_NODE)
    bench.stop()
    return samples


def main() -> None:
    """Run it, and print the page that is kept in docs/."""
    parser = argparse.ArgumentParser(prog="make bench-recovery")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--plain-runs", type=int, default=5, help="runs of plain torchrun, which are slow (%(default)s)"
    )
    parser.add_argument("--faults", default=",".join(Fault), help="which faults, separated by commas (%(default)s)")
    parser.add_argument("--out", type=Path, help="file to write the page to")
    arguments = parser.parse_args()
    faults = [Fault(name) for name in arguments.faults.split(",")]
    samples: dict[tuple[Fault, bool], list[Sample]] = {}
    marked: list[float] = []
    with set_up() as (managed, plainly):
        floor: Floor = measure_floor(managed.kubectl, max(3, arguments.runs // 4))
        say(f"  floor: {floor}")
        for fault in faults:
            if fault is Fault.NODE:
                samples[fault, True] = []
                for run in range(arguments.runs):
                    sample, seconds = lose_node(managed, _PATIENCE)
                    samples[fault, True].append(sample)
                    marked.append(seconds)
                    say(f"  {TITLES[fault]}, {run + 1} of {arguments.runs}: {sample.total} s after {seconds:.0f} s")
                managed.stop()
                continue
            samples[fault, True] = repeat(managed, fault, arguments.runs, _PATIENCE)
            if fault not in (Fault.SPARE, Fault.RESTART, *OF_ELASTIC):
                samples[fault, False] = repeat(plainly, fault, arguments.plain_runs, PLAIN_PATIENCE)
    commit = (output_of(["git", "rev-parse", "--short", "HEAD"]) or "").strip()
    chosen = f"--runs {arguments.runs} --plain-runs {arguments.plain_runs} --faults {arguments.faults}"
    page = report(samples, floor, marked, commit, chosen)
    say(page)
    if arguments.out is not None:
        arguments.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (StepError, FaultError) as error:
        sys.exit(str(error))
