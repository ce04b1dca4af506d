"""`ddpjob run --local`: the same manifest, on this machine, from start to end."""

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from ddpjob.local.console import Console
from ddpjob.local.manifest import LocalManifest
from ddpjob.local.process import Machine
from ddpjob.local.records import Records
from ddpjob.local.runner import Ending, LocalRunner
from ddpjob.local.show import Show
from ddpjob.views.exit_codes import ExitCode
from ddpjob.views.outcome import end_lines
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.engine.clock import SteadyClock
from ddpjob_launcher.archive import FILE, archive


def run_local(manifest: LocalManifest, home: Path, *, show: Show | None = None) -> ExitCode:
    """Run a job to its end: OK, FAILED, or INTERRUPTED where it was asked to stop by Ctrl-C or SIGTERM.

    Args:
        manifest: the job.
        home: where jobs are kept.
        show: shows what happens; by default in the terminal.

    Raises:
        LocalError: the job cannot run on this machine.
    """
    # Absolute, since programs may run in another folder.
    records = Records(home.absolute(), manifest.namespace, manifest.name)
    console = show or Console(left_out=manifest.left_out, config_maps=manifest.config_maps)
    with records.held():
        launcher = _launcher(records.home, manifest.spec.launcher)
        ending = asyncio.run(_run(manifest, records, this_machine(os.environ, launcher), console))
    _close(last_words(manifest.name, ending))
    if ending.status.phase is Phase.SUCCEEDED:
        return ExitCode.OK
    stopped = ending.interrupted and ending.status.phase is not Phase.FAILED
    return ExitCode.INTERRUPTED if stopped else ExitCode.FAILED


def _launcher(home: Path, launcher: Launcher) -> Path:
    """The launcher's file, which all runs with the same one share: a run that is killed leaves nothing behind."""
    content = archive(launcher.traits.module)
    # No namespace begins with a dot.
    file = home / ".launchers" / hashlib.sha256(content).hexdigest()[:16] / FILE
    if not file.is_file() or file.read_bytes() != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{FILE}.{os.getpid()}")
        new.write_bytes(content)
        new.replace(file)
    return file


def _close(words: str) -> None:
    """Print the closing lines, and flush everything: what is left unwritten would make Python fail when it exits."""
    with contextlib.suppress(OSError):
        sys.stderr.write(words)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals at which a training saves and stops; SIGHUP is left out where nohup has made it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,)))


async def _run(manifest: LocalManifest, records: Records, machine: Machine, show: Show) -> Ending:
    runner = LocalRunner(
        manifest,
        records,
        machine,
        show=show,
        now=SteadyClock(lambda: datetime.now(UTC), monotonic),
        new_uid=lambda: str(uuid.uuid4()),
    )
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        # A terminal that is closed sends SIGHUP more than once: the kernel does, and so does the shell.
        loop.add_signal_handler(number, runner.stop if number is signal.SIGHUP else runner.interrupt)
    return await runner.run()


def this_machine(environment: Mapping[str, str], launcher: Path) -> Machine:
    """What this machine has."""
    return Machine(
        python=sys.executable,
        launcher=launcher,
        environment={**environment, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"},
        folder=Path.cwd(),
        gpus=_gpus(environment),
        loopback="lo" if sys.platform == "linux" else "lo0",
    )


def _gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return tuple(index for index in allowed.split(",") if index)
    numbers = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    return tuple(sorted((number for number in numbers if number.isdigit()), key=int))


def last_words(name: str, ending: Ending) -> str:
    """The closing lines: why the run ended and what to do; empty after a success, which an event has reported."""
    error = ending.output_error
    lost = f"ddpjob: the output can no longer be written: {error.strerror}\n" if error else ""
    return lost + _last_words(name, ending.status, ending.checkpoints)


def _last_words(name: str, status: DDPJobStatus, checkpoints: Path | None) -> str:
    if status.phase is Phase.SUCCEEDED:
        return ""
    if status.phase is Phase.FAILED:
        return "ddpjob: " + "".join(f"{line.text}\n" for line in end_lines(name, status))
    step = status.progress.step if status.progress is not None else None
    saved = status.progress.last_checkpoint_step if status.progress is not None else None
    if saved is not None:
        return (
            f"ddpjob: {name} stopped at step {step}, saved at step {saved}: run the same command to resume from there\n"
        )
    if checkpoints is not None and checkpoints.is_dir() and any(checkpoints.iterdir()):
        return f"ddpjob: {name} stopped: run the same command to resume from what it has saved in {checkpoints}\n"
    if checkpoints is not None:
        return f"ddpjob: {name} stopped, with nothing saved in {checkpoints}: run the same command to start it again\n"
    return (
        f"ddpjob: {name} stopped without a checkpoint: run the same command to start it again (see spec.checkpoint)\n"
    )
