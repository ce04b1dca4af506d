"""The other launchers: torch.distributed.launch and python, as `spec.launcher` names them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import WITHOUT_WRAPPER, Job, Node, launchers, wait_until

pytest.importorskip("torch")

PLACE = """
import json, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "DDPJOB_PROCS_PER_NODE")
print(json.dumps({
    "sum": total.item(), "arguments": sys.argv[1:], "pet": [name for name in os.environ if name.startswith("PET_")],
    **{name: os.environ.get(name) for name in names},
}) + "\\n", end="")
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""

# As the tutorials spawn: the program alone decides how many processes there are, and passes each its rank.
SPAWNS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def train(local, processes):
    first, nodes = (0, 1) if sys.argv[1:] == ["apart"] else (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    rank = first * processes + local
    dist.init_process_group("gloo", rank=rank, world_size=nodes * processes)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    os.write(1, f"rank {rank} of {dist.get_world_size()}: sum {total.item()}\\n".encode())
    os.write(1, f"mpi: {dist.is_mpi_available()}\\n".encode())
    dist.barrier()
    if sys.argv[1:] == ["raise"] and rank == 1:
        raise ValueError("bad batch")
    if sys.argv[1:] == ["kill"] and rank == 1:
        os.kill(os.getpid(), 9)
    os._exit(0)

if __name__ == "__main__":
    processes = int(os.environ["DDPJOB_PROCS_PER_NODE"])
    mp.spawn(train, args=(processes,), nprocs=processes)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def places(*nodes: Node) -> list[dict[str, object]]:
    lines = [line for node in nodes for line in node.output.splitlines() if line.startswith('{"sum"')]
    return sorted((json.loads(line) for line in lines), key=lambda place: int(place["RANK"]))


def test_torch_distributed_launch_gives_each_process_its_local_rank_before_the_programs_own_arguments(job: Job) -> None:
    nodes = job.both(job.program(PLACE), "--lr", "0.1", launcher="torch.distributed.launch")
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    found = places(*nodes)
    assert [place["arguments"] for place in found] == [[f"--local-rank={local}", "--lr", "0.1"] for local in (0, 1)] * 2
    assert [place["sum"] for place in found] == [6] * 4


def test_python_starts_one_process_per_node_that_finds_its_place(job: Job) -> None:
    nodes = job.both(job.program(PLACE), "50", "10", launcher="python", processes=1)
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    assert [node.report for node in nodes] == [{"exitCode": 0}] * 2
    assert places(*nodes) == [
        {
            "sum": 1,
            "arguments": ["50", "10"],
            "pet": [],
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": None,
            "DDPJOB_PROCS_PER_NODE": "1",
        }
        for rank in (0, 1)
    ]
    assert "job digits, attempt 0, node 1 of 2, launcher python\n" in nodes[1].output


def test_a_program_under_python_spawns_as_many_processes_as_it_is_asked_for(job: Job) -> None:
    nodes = job.both(job.program(SPAWNS), launcher="python")
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    said = sorted(line for node in nodes for line in node.output.splitlines() if line.startswith("rank "))
    assert said == [f"rank {rank} of 4: sum 6.0" for rank in range(4)]
    assert [node.report for node in nodes] == [{"exitCode": 0}] * 2


def test_spawned_processes_that_are_a_group_without_the_other_nodes_are_reported(job: Job) -> None:
    (job.folder / "site").mkdir()
    (job.folder / "site" / "sitecustomize.py").write_text(WITHOUT_WRAPPER)
    node = job.start(1, 2, job.program(SPAWNS), "apart", launcher="python", PYTHONPATH=str(job.folder / "site"))
    assert node.end() == 0, node.output
    assert node.report == {"exitCode": 0, "groupSize": 2, "jobSize": 4}
    assert "ddpjob: WARNING: a process group of 2 in a job of 4 processes" in node.output
    # Not by the image, but by the launcher.
    assert node.output.count("mpi: False") == 2


def test_a_spawned_process_that_raised_is_named_by_its_rank(job: Job) -> None:
    node = job.start(0, 1, job.program(SPAWNS), "raise", launcher="python")
    assert node.end() == 1
    (failure,) = node.report["failures"]
    assert (failure["rank"], failure["localRank"], failure["exitCode"]) == (1, 1, 1)
    assert (failure["errorType"], failure["message"]) == ("ValueError", "ValueError: bad batch")
    assert 'raise ValueError("bad batch")' in failure["traceback"]


def test_a_spawned_process_that_was_killed_is_named_by_its_rank(job: Job) -> None:
    node = job.start(0, 1, job.program(SPAWNS), "kill", launcher="python")
    assert node.end() == 1
    (failure,) = node.report["failures"]
    assert (failure["rank"], failure["signal"], failure["message"]) == (1, "SIGKILL", "killed by SIGKILL")
    assert "exitCode" not in failure


@pytest.mark.parametrize(
    ("program", "code", "expected"),
    [
        ("raise ValueError('bad batch')", 1, {"exitCode": 1, "message": "ValueError: bad batch"}),
        ("import sys; sys.exit(7)", 7, {"exitCode": 7, "message": "SystemExit: 7"}),
        ("import os; os.kill(os.getpid(), 9)", 137, {"signal": "SIGKILL", "message": "killed by SIGKILL"}),
        ("import ctypes; ctypes.string_at(0)", 139, {"signal": "SIGSEGV"}),
    ],
)
def test_the_end_of_a_process_under_python_is_reported_as_under_torchrun(
    job: Job, program: str, code: int, expected: dict[str, object]
) -> None:
    node = job.start(0, 1, job.program(program), launcher="python", processes=1)
    assert node.end() == code, node.output
    assert node.report["exitCode"] == code
    (failure,) = node.report["failures"]
    assert expected.items() <= failure.items()
    assert failure["rank"] == 0


@pytest.mark.parametrize(("end", "code"), [("sys.exit(143)", 143), ("pass", 143)])
def test_a_process_under_python_is_asked_to_stop_and_waited_for(job: Job, end: str, code: int) -> None:
    program = job.program(
        "import os, pathlib, signal, sys, time\n"
        "asked = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        "pathlib.Path('up').touch()\n"
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(0.5); pathlib.Path('saved').touch()\n"
        f"{end}\n"
    )
    node = job.start(0, 1, program, launcher="python", processes=1)
    job.wait_for("up")
    node.stop()
    assert node.end() == code
    assert (job.folder / "saved").exists()
    assert node.report == {"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM", "message": "stopped by SIGTERM"}


def test_a_program_that_is_not_there_is_named_before_anything_is_waited_for(job: Job) -> None:
    node = job.start(1, 2, "nowhere.py", launcher="python", processes=1)
    assert node.end() == 1
    assert "script nowhere.py not found" in node.report["failures"][0]["message"]


def test_under_python_a_node_waits_until_node_0_has_a_name(job: Job) -> None:
    waiting = job.start(
        1, 2, job.program("print('never')"), launcher="python", processes=1, MASTER_ADDR="digits-a0-0.digits.invalid"
    )
    wait_until(lambda: "waiting for node 0" in waiting.output, lambda: waiting.output)
    waiting.stop()
    assert waiting.end() == 143
    assert "never" not in waiting.output
