"""The guard: the container's first process."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ddpjob_launcher as package
from tests.unit.launcher.running import ENVIRONMENT

OPERATOR = str(Path(package.__file__).parents[1])

# What the guard runs in its child, in the place of an agent.
DRIVER = """
import os, signal, sys, time
from ddpjob_launcher import guard
from ddpjob_launcher.report import write_report

def run_agent(settings, folder):
{body}

guard.run_agent = run_agent
sys.exit(guard.launch())
"""


def _guard(folder: Path, body: str, **environment: str) -> "subprocess.Popen[str]":
    driver = folder / "driver.py"
    driver.write_text(DRIVER.format(body=textwrap.indent(textwrap.dedent(body), " " * 4)))
    (folder / "log").touch()
    return subprocess.Popen(
        [sys.executable, str(driver)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **ENVIRONMENT,
            "PYTHONPATH": OPERATOR,
            "DDPJOB_TERMINATION_LOG": str(folder / "log"),
            "TMPDIR": str(folder),
            **environment,
        },
    )


def test_the_guard_ends_as_the_agent_does_and_leaves_nothing_behind(folder: Path) -> None:
    assert _guard(folder, "return 7").wait(30) == 7
    assert not list(folder.glob("ddpjob-*"))


def test_a_killed_agent_is_reported_by_the_guard(folder: Path) -> None:
    assert _guard(folder, "os.kill(os.getpid(), signal.SIGKILL)").wait(30) == 137
    report = json.loads((folder / "log").read_text())
    assert report["exitCode"] == 137
    assert report["failures"][0]["signal"] == "SIGKILL"


def test_what_the_agent_has_reported_is_not_overwritten(folder: Path) -> None:
    body = "write_report(b'{}')\nos.kill(os.getpid(), signal.SIGKILL)"
    assert _guard(folder, body).wait(30) == 137
    assert (folder / "log").read_text() == "{}"


def test_an_agent_that_does_not_end_in_time_is_killed_and_reported_as_stopped(folder: Path) -> None:
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True: time.sleep(60)
    """
    guard = _guard(folder, body, DDPJOB_GRACE_PERIOD_SECONDS="2")
    assert guard.stdout is not None
    assert guard.stdout.readline() == "ready\n"
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(30) == 143
    assert json.loads((folder / "log").read_text()) == {
        "exitCode": 143,
        "stopped": True,
        "stoppedBy": "SIGTERM",
        "message": "stopped by SIGTERM",
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_the_guard_forwards_a_signal(folder: Path, number: signal.Signals) -> None:
    body = f"""
    signal.signal({int(number)}, lambda *_: os._exit(42))
    print("ready", flush=True)
    while True: time.sleep(0.01)  # short: a signal just before a long one would be handled after it only
    """
    guard = _guard(folder, body)
    assert guard.stdout is not None
    assert guard.stdout.readline() == "ready\n"
    guard.send_signal(number)
    assert guard.wait(30) == 42


def test_the_guard_reaps_orphans_and_leaves_the_agents_own_children_to_it(folder: Path) -> None:
    body = """
    guard, (reader, writer) = os.getppid(), os.pipe()
    child = os.fork()
    if child == 0:
        orphan = os.fork()
        if orphan == 0:
            while os.getppid() != guard: time.sleep(0.01)
            os.write(writer, b"%d" % os.getpid())
            os._exit(0)
        os._exit(5)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 5:
        return 1
    orphan = int(os.read(reader, 20))
    while os.path.exists(f"/proc/{orphan}"): time.sleep(0.01)
    return 0
    """
    assert _guard(folder, body).wait(30) == 0


def test_an_agent_that_cannot_be_loaded_is_reported(folder: Path) -> None:
    driver = "import sys; from ddpjob_launcher import guard; sys.exit(guard.launch())"
    environment = {**ENVIRONMENT, "DDPJOB_LAUNCHER_MODULE": "nosuch", "PYTHONPATH": OPERATOR}
    log = {"DDPJOB_TERMINATION_LOG": str(folder / "log"), "TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", driver], cwd=folder, env={**environment, **log}, check=False)
    (reported,) = json.loads((folder / "log").read_text())["failures"]
    assert (done.returncode, reported["exitCode"]) == (1, 1)
    assert "nosuch" in reported["message"]
