"""What a run without a cluster shows in a terminal: the output of the programs, and what happens to the job."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from ddpjob.local.network import LOOPBACK, Network
from ddpjob.local.records import Records
from ddpjob.local.what_runs import what_runs
from ddpjob.views.progress import progress_line
from ddpjob_core.api.names import parse_pod_name
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.children.template import trainer_of
from ddpjob_core.observations.observed import JobRecord

_OF_A_CLUSTER: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "initContainers",
    "serviceAccountName",
    "securityContext",
)


class Console:
    """Prints a line for each thing that happens: output to `out`, everything else to `err`."""

    def __init__(
        self,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        left_out: Sequence[str] = (),
        config_maps: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Args:
        out: where the programs' output goes, stdout by default.
        err: where everything else goes, stderr by default.
        left_out: fields of the job that have no effect, besides those that `without_effect` finds.
        config_maps: data of the ConfigMaps of the job's file, by name.
        """
        self._left_out = left_out
        self._config_maps = config_maps or {}
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._job = ""
        self._many = False
        self._shown = ""

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        """See `Show.begun`."""
        self._job = job.name
        spec = job.spec
        if spec is None:
            return
        self._many = spec.nodes > 1
        self._say(
            f"{job.name} {'resumes' if resumed else 'starts'} on this machine: {spec.nodes} node"
            f"{'s' if spec.nodes > 1 else ''} with {network.processes} process{'es' if network.processes > 1 else ''} "
            f"each; metrics at http://{LOOPBACK}:{network.metrics_port}/metrics and up, files in {records.folder}"
        )
        for line in what_runs(spec, Path.cwd(), self._config_maps):
            self._say(line)
        left_out = [*without_effect(spec), *self._left_out]
        if left_out:
            self._say(f"without a cluster these have no effect: {', '.join(left_out)}")

    def status(self, status: DDPJobStatus) -> None:
        """See `Show.status`."""
        line = progress_line(status)
        if line != self._shown:
            self._shown = line
            self._say(line)

    def event(self, kind: str, reason: str, message: str) -> None:
        """See `Show.event`."""
        self._say(f"{'! ' if kind == 'Warning' else ''}{reason}: {message}")

    def output(self, pod: str, line: str) -> None:
        """See `Show.output`."""
        identity = parse_pod_name(self._job, pod)
        prefix = f"node {identity.ordinal} | " if self._many and identity is not None else ""
        _write(self._out, f"{prefix}{line}")

    def _say(self, text: str) -> None:
        _write(self._err, f"ddpjob: {text}")


def _write(file: TextIO, line: str) -> None:
    encoding = getattr(file, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=file, flush=True)


def without_effect(spec: DDPJobSpec) -> list[str]:
    """The fields of a job that only have an effect in a cluster."""
    pod: dict[str, Any] = spec.template.get("spec") or {}
    container = trainer_of(spec.template)
    found = ["spec.trainer.image"]
    if spec.trainer.resources.limits or spec.trainer.resources.requests or container.get("resources"):
        found.append("spec.trainer.resources (except for GPUs and procsPerNode)")
    found += [f"spec.template.spec.{name}" for name in _OF_A_CLUSTER if pod.get(name)]
    if any(each.get("name") != container.get("name") for each in pod.get("containers") or []):
        found.append("spec.template.spec.containers other than the trainer")
    return found
