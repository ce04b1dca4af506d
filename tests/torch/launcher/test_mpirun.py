"""The launcher mpirun on one node: Open MPI's real mpirun; that it reaches other nodes is tested on kind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers

pytest.importorskip("torch")

# Rank and size come from Open MPI, also if gloo carries the data.
PLACE = """
import json, os, sys, torch, torch.distributed as dist
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
if sys.argv[1] == "mpi":
    dist.init_process_group("mpi")
else:
    dist.init_process_group("gloo", rank=rank, world_size=size)
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
unset = [name for name in os.environ if name.startswith("PET_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
place = {"rank": rank, "size": dist.get_world_size(), "sum": total.item(), "arguments": sys.argv[1:], "unset": unset}
os.write(1, f"{json.dumps(place)}\\n".encode())
dist.barrier()
if sys.argv[1] != "mpi":
    os._exit(0)
"""

# Rank 1 ends as the program says, the other waits for it forever.
ENDS = """
import os, signal, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    {end}
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def start(job: Job, program: str, *arguments: str, **more: str) -> Node:
    return job.start(0, 1, program, *arguments, launcher="mpirun", **more)


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_the_ranks_of_mpirun_meet_and_get_their_place_from_it_alone(job: Job, backend: str) -> None:
    node = start(job, job.program(PLACE), backend, "--lr", "0.1")
    assert node.end() == 0, node.output
    places = [json.loads(line) for line in node.output.splitlines() if line.startswith('{"rank"')]
    assert sorted(places, key=lambda place: int(place["rank"])) == [
        {"rank": rank, "size": 2, "sum": 1, "arguments": [backend, "--lr", "0.1"], "unset": []} for rank in (0, 1)
    ]
    assert node.report == {"exitCode": 0}


@pytest.mark.parametrize(
    ("end", "code", "expected"),
    [
        ("raise ValueError('bad batch')", 1, {"exitCode": 1, "errorType": "ValueError"}),
        ("sys.exit(7)", 7, {"exitCode": 7, "message": "SystemExit: 7"}),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, {"signal": "SIGKILL", "message": "killed by SIGKILL"}),
        ("import ctypes; ctypes.string_at(0)", 139, {"signal": "SIGSEGV"}),
    ],
)
def test_of_all_ranks_that_mpirun_ends_the_one_that_failed_is_reported(
    job: Job, end: str, code: int, expected: dict[str, object]
) -> None:
    node = start(job, job.program(ENDS.format(end=end)))
    assert node.end() == code, node.output
    assert node.report["exitCode"] == code
    (failure,) = node.report["failures"]
    assert expected.items() <= failure.items()
    assert (failure["rank"], failure["localRank"]) == (1, 1)


def test_ranks_that_are_to_stop_may_finish_what_they_do_and_mpirun_does_not_end_them_for_it(job: Job) -> None:
    program = job.program(
        "import os, pathlib, signal, sys, time\n"
        "asked, rank = [], os.environ['OMPI_COMM_WORLD_RANK']\n"
        "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        "pathlib.Path('up-' + rank).touch()\n"
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(0.5 + int(rank)); pathlib.Path('saved-' + rank).touch()\n"
        "sys.exit(143)\n"
    )
    node = start(job, program)
    job.wait_for("up-0", "up-1")
    node.stop()
    assert node.end() == 143, node.output
    assert (job.folder / "saved-0").exists()
    assert (job.folder / "saved-1").exists()
    assert node.report == {"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM", "message": "stopped by SIGTERM"}


def test_a_rank_that_ends_immediately_when_it_is_to_stop_does_not_cut_off_one_that_saves(job: Job) -> None:
    program = job.program(
        "import os, pathlib, signal, sys, time\n"
        "asked, rank = [], os.environ['OMPI_COMM_WORLD_RANK']\n"
        "if rank == '0': signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        "pathlib.Path('up-' + rank).touch()\n"
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(4); pathlib.Path('saved-' + rank).touch()\n"
    )
    node = start(job, program)
    job.wait_for("up-0", "up-1")
    node.stop()
    assert node.end() == 143, node.output
    assert (job.folder / "saved-0").exists(), node.output


def test_ranks_that_agreed_to_stop_by_themselves_are_reported_as_stopped(job: Job) -> None:
    node = start(job, job.program("import sys; sys.exit(143)"))
    assert node.end() == 143, node.output
    assert node.report == {"exitCode": 143, "stopped": True, "message": "the ranks agreed to stop"}


def test_an_image_without_mpirun_is_reported_with_what_to_install(job: Job, tmp_path: Path) -> None:
    node = start(job, job.program("print('never')"), PATH=str(tmp_path))
    assert node.end() == 1
    (failure,) = node.report["failures"]
    assert "this image has no mpirun" in failure["message"]
    assert failure["permanent"] is True
    assert "install Open MPI" in failure["message"]
