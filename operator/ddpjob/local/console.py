"""What a run without a cluster shows in a terminal: the output of the programs, and what happens to the job."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from ddpjob.local.network import LOOPBACK, Network
from ddpjob.local.records import Records
from ddpjob.views.progress import progress_line
from ddpjob_core.api.names import parse_pod_name
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.api.text import one_line
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
_LONGEST_COMMAND: Final = 300
_LONGEST_PATH: Final = 200
"""Characters that are shown."""


class Console:
    """Prints a line for each thing that happens: output to `out`, everything else to `err`."""

    def __init__(self, *, out: TextIO | None = None, err: TextIO | None = None, left_out: Sequence[str] = ()) -> None:
        self._left_out = left_out
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
        self._say(what_runs(spec, Path.cwd()))
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


def what_runs(spec: DDPJobSpec, folder: Path) -> str:
    """What a job is about to run, for a user who has not written its manifest.

    Args:
        spec: of the job.
        folder: where it runs if it does not say.
    """
    trainer = spec.trainer
    program = trainer.command or ["python", *(["-m", trainer.module] if trainer.module else [trainer.script or ""])]
    words = one_line(shlex.join([*program, *trainer.args]), _LONGEST_COMMAND)
    where = one_line(trainer.working_dir or str(folder), _LONGEST_PATH)
    volumes = (spec.template.get("spec") or {}).get("volumes") or []
    paths = [str(each["hostPath"].get("path")) for each in volumes if isinstance(each.get("hostPath"), dict)]
    mounts = f"; of this machine it mounts {one_line(', '.join(paths), _LONGEST_PATH)}" if paths else ""
    return f"it runs `{words}` in {where} as your own user, not in a container{mounts}"


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
