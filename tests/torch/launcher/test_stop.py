"""How launchers and workers stop: asked by Kubernetes, by agreement of the ranks, or because another has failed."""

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, launchers, wait_until

pytest.importorskip("torch")

# Runs until it is asked to stop, then ends as the first argument says. Sleeps are short where a handler has to run: a
# signal that comes between the last look at the signals and a system call that blocks is handled when that call ends.
UNTIL_STOPPED = """
import os, pathlib, signal, sys, time
def stop(number, frame):
    pathlib.Path("asked-" + os.environ["RANK"]).touch()
    if sys.argv[1] == "save": sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("up-" + os.environ["RANK"]).touch()
while True: time.sleep(0.01)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def test_workers_that_save_and_end_are_waited_for(job: Job) -> None:
    node = job.start(0, 1, job.program(UNTIL_STOPPED), "save")
    job.wait_for("up-0", "up-1")
    node.stop()
    assert node.end() == 143
    assert node.report == {"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM", "message": "stopped by SIGTERM"}
    assert (job.folder / "asked-0").exists()
    assert (job.folder / "asked-1").exists()


def test_workers_that_do_not_end_are_killed_within_the_grace_period(job: Job) -> None:
    node = job.start(0, 1, job.program(UNTIL_STOPPED), "stay", DDPJOB_GRACE_PERIOD_SECONDS="4")
    job.wait_for("up-0", "up-1")
    begin = time.monotonic()
    node.stop()
    assert node.end() == 143
    # Without the job's own grace period it would be 8 s and more; two are left for a busy machine.
    assert 2 <= time.monotonic() - begin < 6
    assert node.report == {
        "exitCode": 143,
        "stopped": True,
        "stoppedBy": "SIGTERM",
        "message": "stopped by SIGTERM; 2 of 2 workers did not exit within 2 s",
    }


@pytest.mark.parametrize(
    ("node", "backend", "sign"),
    [(0, "c10d", "node 0 of 2"), (0, "static", "node 0 of 2"), (1, "c10d", "waiting for node 0")],
)
def test_a_stop_does_not_wait_for_a_rendezvous(job: Job, node: int, backend: str, sign: str) -> None:
    waiting = job.start(node, 2, job.program(""), backend=backend)
    wait_until(lambda: sign in waiting.output, lambda: waiting.output)
    begin = time.monotonic()
    waiting.stop()
    assert waiting.end() == 143
    assert time.monotonic() - begin < 3
    assert waiting.report == {"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM", "message": "stopped by SIGTERM"}


def test_a_node_whose_workers_have_finished_is_not_stopped_but_done(job: Job) -> None:
    program = job.program(
        "import os, pathlib, signal\n"
        "if os.environ['GROUP_RANK'] == '0': signal.pause()\n"
        "pathlib.Path('done-' + os.environ['RANK']).touch()\n"
    )
    _, second = job.both(program)
    job.wait_for("done-2", "done-3")
    wait_until(lambda: second.reported, lambda: second.output)
    second.stop()
    assert second.end() == 0
    assert second.report == {"exitCode": 0}


# Stopping by agreement

# Every rank waits for a file; then it ends as its argument says: an exit code, "hang", "raise", which follows rank 0's
# end immediately, or "save" or "late", which take a while.
AGREED = """
import fcntl, os, pathlib, signal, sys, time
rank = os.environ["RANK"]
held = open("held-" + rank, "w")
fcntl.flock(held, fcntl.LOCK_EX)
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("asked-" + rank).touch())
pathlib.Path("up-" + rank).touch()
how = sys.argv[1 + int(rank)]
while not os.path.exists("go-" + rank) and not os.path.exists("go"): time.sleep(0.01)
if how == "late": time.sleep(1)
if how == "raise": fcntl.flock(open("held-0"), fcntl.LOCK_EX)
if how in ("raise", "late"): raise OSError("no space left")
if how == "hang":
    while True: signal.pause()
if how == "save":
    time.sleep(1)
    pathlib.Path("saved").touch()
    how = "143"
sys.exit(int(how))
"""


def test_ranks_that_have_agreed_to_stop_are_not_started_again(job: Job) -> None:
    nodes = job.both(job.program(AGREED), "143", "143", "143", "save", PET_MAX_RESTARTS="3")
    job.wait_for("up-0", "up-1", "up-2", "up-3")
    # On a busy machine node 0 is else gone, and the store with it, before node 1 has seen one of its own ranks leave.
    (job.folder / "go-2").touch()
    with (job.folder / "held-2").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
    (job.folder / "go").touch()
    for node in nodes:
        assert node.end() == 143, node.output
        assert node.report == {"exitCode": 143, "stopped": True, "message": "the ranks agreed to stop"}
    # A rank that leaves first does not interrupt one that still saves, and sends it no signal.
    assert (job.folder / "saved").exists()
    assert not (job.folder / "asked-3").exists()


def test_ranks_stop_by_agreement_although_node_0_leaves_with_the_store(job: Job) -> None:
    first, second = job.both(job.program(AGREED), "143", "143", "save", "143", PET_MAX_RESTARTS="3")
    job.wait_for("up-0", "up-1", "up-2", "up-3")
    for rank in (0, 1):
        (job.folder / f"go-{rank}").touch()
    assert first.end() == 143
    job.wait_for("asked-2", "asked-3")
    (job.folder / "go").touch()
    assert second.end() == 143, second.output
    assert second.report == {"exitCode": 143, "stopped": True, "message": "the ranks agreed to stop"}
    assert (job.folder / "saved").exists()


@pytest.mark.parametrize("how", ["raise", "late"])
def test_a_rank_that_cannot_save_is_a_failure_and_starts_no_restart(job: Job, how: str) -> None:
    node = job.start(0, 1, job.program(AGREED), "143", how, PET_MAX_RESTARTS="3")
    job.wait_for("up-0", "up-1")
    (job.folder / "go").touch()
    assert node.end() == 1, node.output
    assert "stopped" not in node.report
    assert "processRestarts" not in node.report
    assert [failure["message"] for failure in node.report["failures"]] == ["OSError: no space left", "SystemExit: 143"]


def test_a_rank_that_hangs_does_not_keep_the_others_from_stopping(job: Job) -> None:
    node = job.start(0, 1, job.program(AGREED), "143", "hang", DDPJOB_GRACE_PERIOD_SECONDS="3")
    job.wait_for("up-0", "up-1")
    (job.folder / "go").touch()
    assert node.end() == 143, node.output
    message = "the ranks agreed to stop; 1 of 2 workers did not exit within 1 s"
    assert node.report == {"exitCode": 143, "stopped": True, "message": message}


# torch's own limit

SHORT_LIMIT = """
import sys
class Short:
    def find_spec(self, name, *_):
        if name == "torch.distributed.elastic.agent":
            sys.meta_path.remove(self)
            from torch.distributed.elastic.multiprocessing import PContext
            PContext.close.__defaults__ = (None, 0)
sys.meta_path.insert(0, Short())
"""

NEEDS_A_WHILE = """
import os, pathlib, signal, sys, time
def stop(*_):
    time.sleep(1.5)
    pathlib.Path("saved-" + os.environ["RANK"]).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("up-" + os.environ["RANK"]).touch()
if os.environ["RANK"] == "1" and sys.argv[1] == "fail":
    while not os.path.exists("up-0"): time.sleep(0.01)
    sys.exit(7)
while True: time.sleep(0.01)
"""


@pytest.mark.parametrize("why", ["fail", "asked"])
def test_workers_have_the_pods_grace_period_whatever_torchs_own_limit_is(job: Job, why: str) -> None:
    (job.folder / "site").mkdir()
    (job.folder / "site" / "sitecustomize.py").write_text(SHORT_LIMIT)
    node = job.start(0, 1, job.program(NEEDS_A_WHILE), why, PYTHONPATH=str(job.folder / "site"))
    job.wait_for("up-0", "up-1")
    if why == "asked":
        node.stop()
    assert node.end() == (143 if why == "asked" else 7), node.output
    assert (job.folder / "saved-0").exists()
