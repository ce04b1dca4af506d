"""Trainings without a cluster: real ranks, which are killed, stopped and resumed as on one."""

import asyncio
import os
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from states import JOB, KILLED_BEYOND, NAME, PROGRAM, RANK, STATES, from_running_on, state_of
from steady import EPOCHS, STEPS_PER_EPOCH, losses, resilient, resumed_at

from ddpjob.local.command import this_machine
from ddpjob.local.kubelet import marked_processes
from ddpjob.local.manifest import local_manifest
from ddpjob.local.network import Network
from ddpjob.local.records import Records
from ddpjob.local.runner import Ending, LocalRunner
from ddpjob.manifests.documents import read_documents
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE, archive


@dataclass
class Run:
    """A run of a job: what it showed, and what is done about it whenever it has gone beyond one of some steps."""

    job: dict[str, Any]
    home: Path
    beyond: tuple[int, ...] = ()
    then: Callable[["Run"], None] = lambda _: None
    statuses: list[DDPJobStatus] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    uid: str = ""
    resumed: bool = False
    runner: LocalRunner | None = None

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        assert network.processes
        assert records.name == job.name
        self.uid, self.resumed = job.uid, resumed

    def status(self, status: DDPJobStatus) -> None:
        self.statuses.append(status)
        step = (status.progress.step if status.progress is not None else None) or 0
        if self.beyond and step > self.beyond[0]:
            self.beyond = self.beyond[1:]
            self.then(self)

    def event(self, kind: str, reason: str, message: str) -> None:
        assert kind
        assert reason
        assert message

    def output(self, pod: str, line: str) -> None:
        self.lines.setdefault(pod, []).append(line)

    def log(self, pod: str) -> str:
        return "\n".join(self.lines.get(pod, []))

    def kill_rank(self, rank: int) -> None:
        (process,) = [each for each in marked_processes(f"{self.uid}/") if _is_rank(each, rank)]
        process.send_signal(signal.SIGKILL)

    async def to_the_end(self) -> Ending:
        manifest = local_manifest(read_documents(yaml.safe_dump_all([PROGRAM, self.job]), "job.yaml"))
        launcher = self.home / FILE
        launcher.write_bytes(archive(manifest.spec.launcher.traits.module))
        records = Records(self.home, manifest.namespace, manifest.name)
        with records.held():
            self.runner = LocalRunner(
                manifest,
                records,
                this_machine(os.environ, launcher),
                show=self,
                now=lambda: datetime.now(UTC),
                new_uid=lambda: str(uuid.uuid4()),
            )
            async with asyncio.timeout(180):
                return await self.runner.run()


def _is_rank(process: psutil.Process, rank: int) -> bool:
    environment = process.environ()
    return environment.get("RANK") == str(rank) and "TORCHELASTIC_RUN_ID" in environment


async def test_killed_processes_give_the_states_of_a_cluster(tmp_path: Path) -> None:
    run = Run(JOB, tmp_path, KILLED_BEYOND, then=lambda run: run.kill_rank(RANK))
    ending = await run.to_the_end()
    assert ending.status.phase is Phase.SUCCEEDED, run.lines
    assert from_running_on(state_of(status.to_wire()) for status in run.statuses) == STATES
    log = run.log(f"{NAME}-a1-0")
    assert resumed_at(log) > KILLED_BEYOND[0]
    assert max(losses(log)) == EPOCHS * STEPS_PER_EPOCH


# tests/unit/client/local has it with programs that need no torch.
@pytest.mark.full
async def test_ctrl_c_saves_and_the_same_command_goes_on_at_that_very_step(tmp_path: Path) -> None:
    def interrupt(run: Run) -> None:
        assert run.runner is not None
        run.runner.interrupt()

    first = Run(resilient("paused"), tmp_path, (30,), then=interrupt)
    ending = await first.to_the_end()
    assert (ending.interrupted, ending.status.phase) == (True, Phase.SUSPENDED)
    progress = ending.status.progress
    assert progress is not None
    assert progress.step == progress.last_checkpoint_step
    second = Run(resilient("paused"), tmp_path)
    ending = await second.to_the_end()
    assert (ending.status.phase, second.uid, second.resumed) == (Phase.SUCCEEDED, first.uid, True)
    assert resumed_at(second.log("paused-a1-0")) == progress.step
