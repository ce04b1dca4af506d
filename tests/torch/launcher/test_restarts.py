"""Restarts in place: workers that die restart inside the running pods, on all nodes together and quickly."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Job, Node, launchers, wait_until

pytest.importorskip("torch")

# In its first round every rank takes part in collectives until the test, or an exception, ends one of them.
UNTIL_ONE_DIES = """
import os, pathlib, sys, torch, torch.distributed as dist
rank, count = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"ROUND {count} rank {rank} sum {total.item():g} port {os.environ['MASTER_PORT']}\\n", end="", flush=True)
pathlib.Path(f"pid-{rank}-{count}.new").write_text(str(os.getpid()))
os.rename(f"pid-{rank}-{count}.new", f"pid-{rank}-{count}")
while count == "0":
    if os.path.exists("raise") and rank == "3": raise ValueError("bad batch")
    dist.all_reduce(total)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def _rounds(*nodes: Node) -> list[list[str]]:
    return sorted(line.split() for node in nodes for line in node.output.splitlines() if line.startswith("ROUND"))


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("kill", "rank 3: killed by SIGKILL"),
        pytest.param("raise", "rank 3: ValueError: bad batch", marks=pytest.mark.full),
    ],
)
def test_workers_of_all_nodes_start_again_when_one_dies(job: Job, how: str, cause: str) -> None:
    nodes = job.both(job.program(UNTIL_ONE_DIES), PET_MAX_RESTARTS="3")
    job.wait_for(*(f"pid-{rank}-0" for rank in range(4)))
    if how == "kill":
        os.kill(int((job.folder / "pid-3-0").read_text()), signal.SIGKILL)
    else:
        (job.folder / "raise").touch()
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    assert [node.report for node in nodes] == [{"exitCode": 0, "processRestarts": 1}] * 2
    assert f"ddpjob: {cause}: all workers restart in their running pods, process restart 1 of 3\n" in nodes[1].output
    # Every node counts the restart, and no worker finds in the store what the ones before it left there.
    rounds = _rounds(*nodes)
    assert [line[:6] for line in rounds] == [
        ["ROUND", str(count), "rank", str(rank), "sum", "4"] for count in range(2) for rank in range(4)
    ]
    ports = [{line[7] for line in rounds if line[1] == count} for count in ("0", "1")]
    assert len(ports[0]) == len(ports[1]) == 1
    assert ports[0] != ports[1]


def test_a_restart_does_not_wait_for_workers_that_do_not_stop(job: Job) -> None:
    program = job.program(
        "import os, pathlib, signal, sys, time\n"
        "rank, count = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path(f'up-{rank}').touch()\n"
        "while not all(os.path.exists(f'up-{r}') for r in range(4)): time.sleep(0.01)\n"
        "if count == '0' and rank == '3': sys.exit(1)\n"
        "while count == '0': signal.pause()\n"
    )
    nodes = job.both(program, PET_MAX_RESTARTS="1", DDPJOB_GRACE_PERIOD_SECONDS="600")
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    assert [node.report for node in nodes] == [{"exitCode": 0, "processRestarts": 1}] * 2
    assert "ddpjob: workers on another node have exited: all workers restart, process restart 1\n" in nodes[0].output


def test_a_budget_that_is_used_up_leaves_the_cause_of_the_last_round(job: Job) -> None:
    program = job.program(
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if os.environ['RANK'] == '1': raise ValueError('round ' + os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "dist.barrier()\n"
    )
    first, second = job.both(program, processes=1, PET_MAX_RESTARTS="1")
    assert (first.end(), second.end()) == (1, 1), first.output + second.output
    assert (first.report["processRestarts"], second.report["processRestarts"]) == (1, 1)
    assert second.report["failures"][0]["message"] == "ValueError: round 1"
    assert second.report["failures"][0]["rank"] == 1
    # The other node's budget is used up as well: it reports its own workers' end and not that of the rendezvous.
    assert {failure.get("rank") for failure in first.report["failures"]} <= {0}


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        ("import torch, gone", 1, "ModuleNotFoundError: No module named 'gone'"),
        pytest.param(
            "import argparse, torch; argparse.ArgumentParser(prog='train').parse_args(['--fast'])",
            2,
            "SystemExit: 2: train: error: unrecognized arguments: --fast",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_program_that_python_cannot_begin_is_started_once(job: Job, program: str, code: int, message: str) -> None:
    first, second = job.both(job.program(f"print('STARTED')\n{program}"), PET_MAX_RESTARTS="3")
    assert first.end() == code, first.output
    assert (first.report["failures"][0]["message"], first.report["failures"][0]["permanent"]) == (message, True)
    # The store goes with the first node: the other may report that before its own processes have ended.
    assert second.end() in (1, code), second.output
    for node in (first, second):
        assert node.output.count("STARTED") <= 2, node.output
        assert "processRestarts" not in node.report


def test_a_module_that_is_missing_once_the_ranks_have_met_does_not_end_the_restarts(job: Job) -> None:
    program = "import torch.distributed as dist\ndist.init_process_group('gloo')\nimport gone\n"
    node = job.start(0, 1, job.program(program), processes=1, PET_MAX_RESTARTS="1")
    assert node.end() == 1, node.output
    assert node.report["processRestarts"] == 1


def test_a_worker_that_fails_after_another_node_has_finished_is_reported_immediately(job: Job) -> None:
    program = job.program(
        "import os, pathlib, time\n"
        "if os.environ['GROUP_RANK'] == '1':\n"
        "    while not os.path.exists('finished'): time.sleep(0.01)\n"
        "    raise ValueError('late')\n"
    )
    first, second = job.both(program, PET_MAX_RESTARTS="3", timeout=600)
    wait_until(lambda: first.reported, lambda: first.output)
    (job.folder / "finished").touch()
    assert second.end() == 1, second.output
    failures: list[dict[str, Any]] = second.report["failures"]
    assert failures[0]["message"] == "ValueError: late"
    assert first.report == {"exitCode": 0}
