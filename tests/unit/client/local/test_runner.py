"""Jobs that run without a cluster, as real processes: what becomes of them is decided as on one."""

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddpjob.local.command import last_words, this_machine
from ddpjob.local.console import Console
from ddpjob.local.kubelet import marked_processes
from ddpjob.local.manifest import LocalManifest, local_manifest
from ddpjob.local.network import Network
from ddpjob.local.records import Records
from ddpjob.local.runner import Ending, LocalRunner
from ddpjob.local.show import Show
from ddpjob.local.tail import Tails
from ddpjob.manifests.documents import read_documents
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.observations.observed import JobRecord


def job_of(program: str, **spec: Any) -> LocalManifest:
    job = {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": "digits"},
        "spec": {
            "nodes": 2,
            "procsPerNode": 1,
            "trainer": {"image": "i", "command": [sys.executable, "-c", program]},
            **spec,
        },
    }
    return local_manifest(read_documents(yaml.safe_dump(job), "job.yaml"))


@dataclass
class Seen:
    """What a run tells; `react` is called with each status and each line."""

    react: Callable[["Seen"], None] = lambda _: None
    statuses: list[DDPJobStatus] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    uid: str = ""
    resumed: bool = False
    network: Network | None = None

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        assert network.metrics_port > 0
        assert records.folder.is_dir()
        self.uid, self.resumed, self.network = job.uid, resumed, network

    def status(self, status: DDPJobStatus) -> None:
        self.statuses.append(status)
        self.react(self)

    def event(self, kind: str, reason: str, message: str) -> None:
        assert kind in ("Normal", "Warning")
        assert message
        self.events.append(reason)

    def output(self, pod: str, line: str) -> None:
        self.lines.append(f"{pod}: {line}")
        self.react(self)

    @property
    def phases(self) -> list[str]:
        phases = [status.phase.value for status in self.statuses if status.phase is not None]
        return [phase for index, phase in enumerate(phases) if index == 0 or phases[index - 1] != phase]


async def run(
    manifest: LocalManifest, home: Path, seen: Show, drive: Callable[[LocalRunner, Seen], Any] | None = None
) -> Ending:
    records = Records(home, manifest.namespace, manifest.name)
    with records.held():
        machine = this_machine(os.environ, home / "launcher.pyz")
        runner = LocalRunner(
            manifest,
            records,
            machine,
            show=seen,
            now=lambda: datetime.now(UTC),
            new_uid=lambda: str(uuid.uuid4()),
        )
        if drive is not None and isinstance(seen, Seen):
            seen.react = lambda so_far: drive(runner, so_far)
        elif drive is not None:
            drive(runner, Seen())
        async with asyncio.timeout(60):
            return await runner.run()


async def test_nodes_that_exit_with_0_have_succeeded_and_their_output_is_passed_on(tmp_path: Path) -> None:
    seen = Seen()
    ending = await run(job_of("import os; print('node', os.environ['DDPJOB_NODE_RANK'])"), tmp_path, seen)
    assert ending.status.phase is Phase.SUCCEEDED
    assert sorted(seen.lines) == ["digits-a0-0: node 0", "digits-a0-1: node 1"]
    assert seen.events == ["PodsCreated", "Succeeded"]
    assert last_words("digits", ending) == ""


async def test_a_manifest_that_is_suspended_on_a_cluster_runs_here(tmp_path: Path) -> None:
    ending = await run(job_of("print('x')", suspend=True), tmp_path, Seen())
    assert ending.status.phase is Phase.SUCCEEDED


async def test_a_program_may_work_in_a_folder_of_a_claim_from_its_first_run_on(tmp_path: Path) -> None:
    trainer = {
        "image": "i",
        "command": [sys.executable, "-c", "import os; print(os.getcwd())"],
        "workingDir": "/data/work",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    seen = Seen()
    await run(job_of("", nodes=1, trainer=trainer, template={"spec": {"volumes": volumes}}), tmp_path, seen)
    assert seen.lines == [f"digits-a0-0: {tmp_path}/default/claims/data/work"]


FAILS_ONCE = """
import os, sys, time
if os.environ["DDPJOB_ATTEMPT"] == "0" and os.environ["DDPJOB_NODE_RANK"] == "1":
    sys.exit(7)
time.sleep(0 if os.environ["DDPJOB_ATTEMPT"] == "1" else 60)
"""


async def test_a_node_that_fails_ends_the_attempt_and_the_next_one_is_counted(tmp_path: Path) -> None:
    seen = Seen()
    ending = await run(job_of(FAILS_ONCE), tmp_path, seen)
    assert ending.status.phase is Phase.SUCCEEDED
    assert (ending.status.attempt, ending.status.restarts.counted) == (1, 1)
    assert seen.phases[-3:] == ["Restarting", "Running", "Succeeded"] or seen.phases[-2:] == ["Restarting", "Succeeded"]
    assert "Restarting" in seen.events


async def test_a_job_without_restarts_left_fails_with_the_exit_code_of_its_node(tmp_path: Path) -> None:
    ending = await run(job_of("import sys; sys.exit(7)", restart={"maxRestarts": 0}), tmp_path, Seen())
    assert ending.status.phase is Phase.FAILED
    assert ending.status.failure is not None
    assert ending.status.failure.exit_code == 7
    words = last_words("digits", ending)
    assert words.startswith("ddpjob: digits has failed after ")
    assert "RestartsNotAllowed: the container trainer of digits-a0-" in words
    # That command asks a cluster.
    assert "ddpjob why" not in words


async def test_a_terminal_shows_what_applies_to_this_machine_and_not_to_a_cluster(tmp_path: Path) -> None:
    shown = io.StringIO()

    class Told(Console):
        """Interrupts the job once it has been restarted and waits."""

        runner: LocalRunner | None = None

        def output(self, pod: str, line: str) -> None:
            super().output(pod, line)
            if self.runner is not None and pod == "digits-a1-1":
                self.runner.interrupt()

    console = Told(out=shown, err=shown)
    fails_once = (
        "import os, time; print(1, flush=True); time.sleep(60) if os.environ['DDPJOB_ATTEMPT'] > '0' else exit(7)"
    )
    ending = await run(job_of(fails_once), tmp_path, console, lambda runner, _: setattr(console, "runner", runner))
    told = shown.getvalue() + last_words("digits", ending)
    assert (ending.status.phase, ending.status.attempt) == (Phase.SUSPENDED, 1)
    assert re.search(rf"code 7; see {tmp_path}/default/jobs/digits/[-a-f0-9]+/digits-a0-[01]/log;", told)
    assert "Suspended: no processes are running; run the same command again to resume" in told
    assert "kubectl" not in told
    assert "spec.suspend" not in told


async def test_the_last_words_of_a_failed_job_name_the_log(tmp_path: Path) -> None:
    ending = await run(job_of("exit(7)", nodes=1, restart={"maxRestarts": 0}), tmp_path, Seen())
    (log,) = tmp_path.glob("default/jobs/digits/*/*/log")  # noqa: ASYNC240 nothing else runs
    assert f"exited with code 7; see {log} (attempt 0" in last_words("digits", ending)


async def test_a_command_that_is_not_there_is_the_failure(tmp_path: Path) -> None:
    trainer = {"image": "i", "command": ["no-such-program"]}
    ending = await run(job_of("", trainer=trainer, restart={"maxRestarts": 0}), tmp_path, Seen())
    assert ending.status.failure is not None
    assert "no-such-program" in ending.status.failure.message


@pytest.mark.parametrize("pidfd", [True, False])
async def test_the_end_of_every_node_is_noticed_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pidfd: bool
) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    # One more than the event loop has threads of its own.
    nodes = min(32, (os.cpu_count() or 1) + 4) + 1
    script = f'[ "$DDPJOB_NODE_RANK" = {nodes - 1} ] && exit 7; exec sleep 60'
    trainer = {"image": "i", "command": ["sh", "-c", script]}
    ending = await run(job_of("", nodes=nodes, trainer=trainer, restart={"maxRestarts": 0}), tmp_path, Seen())
    assert ending.status.failure is not None
    assert ending.status.failure.exit_code == 7


async def test_jobs_that_start_together_have_ports_of_their_own(tmp_path: Path) -> None:
    one, other = Seen(), Seen()
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    await asyncio.gather(run(job_of("1"), tmp_path / "one", one), run(job_of("1"), tmp_path / "other", other))
    assert one.network is not None
    assert other.network is not None
    assert not ports_of(one.network) & ports_of(other.network)


def ports_of(network: Network) -> set[int]:
    return {network.rendezvous_port, *(network.node_metrics_port(ordinal) for ordinal in range(2))}


FAILS_WHERE_ITS_PORT_IS_TAKEN = """
import os, socket, time
print(os.environ["DDPJOB_RENDEZVOUS_PORT"], flush=True)
if os.environ["DDPJOB_ATTEMPT"] == "0":
    time.sleep(60)
if os.environ["DDPJOB_NODE_RANK"] == "0":
    socket.create_server(("", int(os.environ["DDPJOB_RENDEZVOUS_PORT"])))
"""


async def test_the_next_attempt_has_other_ports_if_another_program_has_taken_one_since(tmp_path: Path) -> None:
    seen = Seen()
    with contextlib.ExitStack() as held:

        def take(_: LocalRunner, so_far: Seen) -> None:
            if len(so_far.lines) == 2 and so_far.network is not None:
                held.enter_context(socket.create_server(("", so_far.network.rendezvous_port)))
                so_far.network = None
                for process in marked_processes(f"{so_far.uid}/"):
                    process.kill()

        ending = await run(job_of(FAILS_WHERE_ITS_PORT_IS_TAKEN), tmp_path, seen, take)
    assert (ending.status.phase, ending.status.attempt) == (Phase.SUCCEEDED, 1)
    assert "PortsTaken" in seen.events
    assert len({line.partition(": ")[2] for line in seen.lines}) == 2


SAVES = """
import signal, sys, time
def stop(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(60)
"""


async def test_a_run_that_is_interrupted_lets_the_programs_save_and_goes_on_next_time(tmp_path: Path) -> None:
    def interrupt(runner: LocalRunner, seen: Seen) -> None:
        if len(seen.lines) == 2 and not seen.resumed:
            seen.resumed = True
            runner.interrupt()

    seen = Seen()
    ending = await run(job_of(SAVES), tmp_path, seen, interrupt)
    assert (ending.interrupted, ending.status.phase) == (True, Phase.SUSPENDED)
    assert [line for line in seen.lines if "saved" in line]
    assert re.search("to resume from|to start it again", last_words("digits", ending))
    again = Seen()
    await run(job_of(SAVES), tmp_path, again, lambda runner, so_far: runner.interrupt() if so_far.lines else None)
    assert (again.resumed, again.uid) == (True, seen.uid)
    assert again.lines[0].startswith("digits-a1-")


async def test_another_spec_of_the_name_leaves_an_unfinished_job_which_its_own_command_goes_on_with(
    tmp_path: Path,
) -> None:
    def interrupt(runner: LocalRunner, seen: Seen) -> None:
        if len(seen.lines) == 2:
            runner.interrupt()

    first, other, again = Seen(), Seen(), Seen()
    await run(job_of(WAITS_ONCE), tmp_path, first, interrupt)
    await run(job_of("print('another')"), tmp_path, other)
    ending = await run(job_of(WAITS_ONCE), tmp_path, again)
    assert "AnotherUnfinished" in other.events
    assert (other.resumed, other.uid == first.uid) == (False, False)
    assert (ending.status.phase, again.uid, again.resumed) == (Phase.SUCCEEDED, first.uid, True)
    assert not {"AnotherUnfinished"} & {*first.events, *again.events}


@pytest.mark.parametrize("saves", [True, False])
async def test_a_program_that_reports_nothing_goes_on_from_what_it_has_saved(tmp_path: Path, *, saves: bool) -> None:
    program = f"""
import os, pathlib, time
if {saves}:
    folder = pathlib.Path(os.environ["DDPJOB_CHECKPOINT_PATH"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.pt").write_text("weights")
print("ready", flush=True)
time.sleep(60)
"""
    seen = Seen()
    ending = await run(
        job_of(program, nodes=1, checkpoint={"claimName": "kept"}),
        tmp_path,
        seen,
        lambda runner, so_far: runner.interrupt() if len(so_far.lines) == 1 else None,
    )
    folder = tmp_path / "default/claims/kept" / seen.uid
    assert last_words("digits", ending) == (
        f"ddpjob: digits stopped: run the same command to resume from what it has saved in {folder}\n"
        if saves
        else f"ddpjob: digits stopped, with nothing saved in {folder}: run the same command to start it again\n"
    )


@pytest.mark.parametrize(
    ("checkpoint", "kept"), [({"size": "1Gi", "retain": "Delete"}, 6), ({"size": "1Gi"}, 8), ({"claimName": "c"}, 8)]
)
async def test_only_the_last_finished_runs_of_a_name_are_kept_and_all_checkpoints_that_are_retained(
    tmp_path: Path, checkpoint: dict[str, str], kept: int
) -> None:
    manifest, records = job_of("1", nodes=1, checkpoint=checkpoint), Records(tmp_path, "default", "digits")
    claim = records.claims / checkpoint.get("claimName", "digits-checkpoints")
    for number in range(8):
        spec = {**manifest.job["spec"], "nodes": 2} if number == 0 else manifest.job["spec"]
        times = {"uid": f"u{number}", "creationTimestamp": f"2026-01-0{number + 1}T00:00:00Z"}
        status = {"phase": "Suspended" if number == 0 else "Succeeded"}
        records.save(
            {**manifest.job, "spec": spec, "metadata": {**manifest.job["metadata"], **times}, "status": status}
        )
        (claim / f"u{number}").mkdir(parents=True)
    (claim / "mine").mkdir()
    seen = Seen()
    ending = await run(manifest, tmp_path, seen)
    assert ending.status.phase is Phase.SUCCEEDED
    assert names_in(records.folder) == ["lock", *sorted([seen.uid, "u0", "u3", "u4", "u5", "u6", "u7"])]
    assert [name for name in names_in(claim) if name.startswith("u")] == [f"u{n}" for n in (0, *range(9 - kept, 8))]
    assert (claim / "mine").is_dir()


def names_in(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.iterdir())
    return sorted(names, key=lambda name: name != "lock")


def logs_in(home: Path) -> list[str]:
    return [log.read_text() for log in home.glob("default/jobs/digits/*/*/log")]


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), RuntimeError("a bug")])
async def test_where_the_output_is_gone_the_programs_save_before_they_are_stopped(
    tmp_path: Path, error: Exception
) -> None:
    told: list[Exception] = []

    def cannot(_: LocalRunner, seen: Seen) -> None:
        if len(seen.lines) == 2:
            told.append(error)
            raise error

    if isinstance(error, OSError):
        ending = await run(job_of(SAVES), tmp_path, Seen(), cannot)
        assert (ending.status.phase, ending.output_error) == (Phase.SUSPENDED, error)
        assert "can no longer be written: Broken pipe" in last_words("digits", ending)
    else:
        with pytest.raises(RuntimeError, match="a bug"):
            await run(job_of(SAVES), tmp_path, Seen(), cannot)
    assert logs_in(tmp_path) == ["ready\nsaved\n"] * 2
    # A terminal that is gone is not written to again.
    assert told == [error]


async def test_a_part_of_the_runner_that_fails_lets_the_programs_save_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, look = Seen(), Tails.look

    def fails(tails: Tails) -> None:
        look(tails)
        if len(seen.lines) == 2:
            raise RuntimeError("a bug")

    monkeypatch.setattr(Tails, "look", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        await run(job_of(SAVES), tmp_path, seen)
    assert logs_in(tmp_path) == ["ready\nsaved\n"] * 2
    monkeypatch.undo()
    again = Seen()
    await run(job_of(SAVES), tmp_path, again, lambda runner, so_far: runner.interrupt() if so_far.lines else None)
    assert (again.resumed, again.uid, again.statuses[-1].restarts.counted) == (True, seen.uid, 0)


async def test_a_terminal_that_is_closed_asks_more_than_once_and_still_lets_the_programs_save(tmp_path: Path) -> None:
    def closed(runner: LocalRunner, seen: Seen) -> None:
        if len(seen.lines) == 2 and not seen.resumed:
            seen.resumed = True
            # By the kernel and by the shell, which may have passed on a Ctrl-C too.
            runner.stop()
            runner.interrupt()
            runner.stop()

    ending = await run(job_of(SAVES), tmp_path, Seen(), closed)
    assert (ending.interrupted, ending.status.phase) == (True, Phase.SUSPENDED)
    assert logs_in(tmp_path) == ["ready\nsaved\n"] * 2


async def test_asked_twice_a_program_that_does_not_stop_is_killed_with_all_its_children(tmp_path: Path) -> None:
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True); "
        "print('ready', flush=True); time.sleep(60)"
    )

    def interrupt(runner: LocalRunner, seen: Seen) -> None:
        if len(seen.lines) == 2:
            runner.interrupt()
            if len(marked_processes(f"{seen.uid}/")) == 4:
                runner.interrupt()

    seen = Seen()
    ending = await run(job_of(stubborn), tmp_path, seen, interrupt)
    assert ending.interrupted
    assert marked_processes(f"{seen.uid}/") == []


async def test_wall_time_ends_a_job(tmp_path: Path) -> None:
    ending = await run(job_of("import time; time.sleep(60)", activeDeadlineSeconds=1), tmp_path, Seen())
    assert ending.status.failure is not None
    assert ending.status.failure.reason == "DeadlineExceeded"


@asynccontextmanager
async def killed_runner(program: str, home: Path, **spec: Any) -> AsyncIterator[None]:
    """Another process runs the job, and is killed at the end of the block."""
    script = (
        "import asyncio, json, sys; sys.path[:0] = sys.argv[3:]; from pathlib import Path; "
        "from test_runner import Seen, job_of, run; "
        "asyncio.run(run(job_of(sys.argv[1], **json.loads(sys.argv[2])), Path('.'), Seen()))"
    )
    arguments = (program, json.dumps(spec), str(Path(__file__).parent))
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", script, *arguments, cwd=home)
    try:
        yield
    finally:
        runner.send_signal(signal.SIGKILL)
        await runner.wait()


WAITS_ONCE = """
import os, time
print("attempt", os.environ["DDPJOB_ATTEMPT"], flush=True)
time.sleep(0 if os.environ["DDPJOB_ATTEMPT"] == "1" else 60)
"""


async def test_a_job_whose_runner_was_killed_goes_on_as_the_next_attempt_which_is_not_counted(tmp_path: Path) -> None:
    records, spec = Records(tmp_path, "default", "digits"), {"restart": {"maxRestarts": 0}}
    async with killed_runner(WAITS_ONCE, tmp_path, **spec), asyncio.timeout(30):
        while (left_job(records).get("status") or {}).get("phase") != "Running":  # noqa: ASYNC110 another process
            await asyncio.sleep(0.05)
    uid = left_job(records)["metadata"]["uid"]
    seen = Seen()
    ending = await run(job_of(WAITS_ONCE, **spec), tmp_path, seen)
    assert ending.status.phase is Phase.SUCCEEDED
    assert (ending.status.attempt, ending.status.restarts.counted) == (1, 0)
    assert (seen.resumed, seen.uid) == (True, uid)
    assert sorted(seen.lines) == ["digits-a1-0: attempt 1", "digits-a1-1: attempt 1"]


async def test_a_job_whose_runner_was_killed_before_it_wrote_a_status_uses_no_pod_s_name_twice(tmp_path: Path) -> None:
    records, manifest = Records(tmp_path, "default", "digits"), job_of(WAITS_ONCE)
    metadata = {**manifest.job["metadata"], "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    with records.held():
        records.save({**manifest.job, "metadata": metadata})
    seen = Seen()
    ending = await run(manifest, tmp_path, seen)
    assert (ending.status.phase, ending.status.attempt, seen.uid) == (Phase.SUCCEEDED, 1, "u1")


async def test_what_a_killed_runner_left_running_is_ended_before_the_job_starts_again(tmp_path: Path) -> None:
    # They are asked to stop when their runner is gone, and do not.
    stays = "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"
    records = Records(tmp_path, "default", "digits")
    async with killed_runner(stays, tmp_path):
        async with asyncio.timeout(30):
            while [log.read_text() for log in records.folder.glob("*/*/log")] != ["here\n", "here\n"]:  # noqa: ASYNC110 another process
                await asyncio.sleep(0.05)
    assert len(_left(records)) == 2
    before = {process.pid for process in _left(records)}
    seen = Seen()
    await run(job_of(stays), tmp_path, seen, lambda again, so_far: _twice(again) if so_far.lines else None)
    assert seen.resumed
    assert not before & {process.pid for process in _left(records)}


def left_job(records: Records) -> dict[str, Any]:
    return next(iter(records.left()), {})


def _left(records: Records) -> list[Any]:
    job = left_job(records)
    return marked_processes(f"{job['metadata']['uid']}/") if job else []


def _twice(runner: LocalRunner) -> None:
    runner.interrupt()
    runner.interrupt()


@pytest.mark.parametrize("policy", ["None", "All"])
async def test_the_clean_pod_policy_is_obeyed_and_logs_stay(tmp_path: Path, policy: str) -> None:
    seen = Seen()
    await run(job_of("print('x')", cleanPodPolicy=policy), tmp_path, seen)
    logs = list((tmp_path / "default/jobs/digits" / seen.uid).glob("*/log"))
    assert [log.read_text() for log in logs] == ["x\n", "x\n"]
