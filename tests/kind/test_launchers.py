"""Every launcher on two nodes: ranks, world size, and what a collective comes to."""

import re

import pytest
from jobs import OPERATOR_IMAGE, program, scripted
from kubectl import Kubectl
from steady import STEADY, claim, losses, resilient, resumed_at, trains

# Both spellings of the local rank, as programs for torch.distributed.launch have them.
LAUNCHED = """
import argparse, os, sys, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, required=True)
parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
arguments = parser.parse_args()
assert arguments.local_rank == int(os.environ["LOCAL_RANK"])
dist.init_process_group(arguments.backend)
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total.item()}\\n".encode())
dist.barrier()
os._exit(0)
"""

SPAWNED = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp

def train(local, processes):
    rank = int(os.environ["RANK"]) * processes + local
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]) * processes)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    os.write(1, f"rank {rank} of {dist.get_world_size()} sum {total.item()}\\n".encode())
    dist.barrier()
    os._exit(0)

if __name__ == "__main__":
    processes = int(os.environ["DDPJOB_PROCS_PER_NODE"])
    mp.spawn(train, args=(processes,), nprocs=processes)
"""

# As the programs for mpirun have it: the place in the world comes from Open MPI, also where MPI itself carries nothing.
MPI = """
import os, sys, torch, torch.distributed as dist
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
if sys.argv[1] == "mpi":
    dist.init_process_group("mpi")
else:
    dist.init_process_group("gloo", rank=rank, world_size=size)
assert (rank, size) == (dist.get_rank(), dist.get_world_size())
total = torch.tensor([rank])
dist.all_reduce(total)
print(f"rank {rank} of {size} sum {total.item()} on node {os.environ['DDPJOB_NODE_RANK']}\\n", end="", flush=True)
dist.barrier()
if sys.argv[1] != "mpi":
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("launcher", "source", "arguments"),
    [
        # test_launch_lines.py starts it on two nodes, tests/torch has the ranks meet.
        pytest.param("torch.distributed.launch", LAUNCHED, ["--backend=gloo"], marks=pytest.mark.full),
        ("python", SPAWNED, []),
    ],
)
def test_the_ranks_of_a_launcher_meet_and_the_first_of_a_node_is_where_its_ordinal_says(
    kubectl: Kubectl, launcher: str, source: str, arguments: list[str]
) -> None:
    job = scripted("ranks", config_map="ranks", procs=2, launcher=launcher)
    job["spec"]["trainer"]["args"] = arguments
    kubectl.apply(program("ranks", source), job)
    kubectl.wait_for_phase("ranks", "Succeeded")
    for ordinal in (0, 1):
        said = re.findall(r"rank (\d) of (\d) sum (\d)", kubectl.logs(f"ranks-a0-{ordinal}"))
        assert sorted(said) == [(str(2 * ordinal + local), "4", "6") for local in (0, 1)]
    assert launcher in kubectl("get", "ddpjob", "ranks", "-o", "wide")


# Of the two, mpi has to do with more of mpirun; tests/torch has both.
@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=pytest.mark.full), "mpi"])
def test_mpirun_starts_the_ranks_of_all_nodes_by_ssh(kubectl: Kubectl, backend: str) -> None:
    job = scripted("ranks", config_map="ranks", procs=2, launcher="mpirun", backend=backend)
    job["spec"]["trainer"]["args"] = [backend]
    kubectl.apply(program("ranks", MPI), job)
    status = kubectl.wait_for_phase("ranks", "Succeeded")["status"]
    assert status["attempt"] == 0, kubectl.story("ranks")
    # mpirun hands on what all ranks write.
    said = re.findall(r"rank (\d) of (\d) sum (\d) on node (\d)", kubectl.logs("ranks-a0-0"))
    assert sorted(said) == [(str(rank), "4", "6", str(rank // 2)) for rank in range(4)]
    assert kubectl.job("ranks")["status"]["nodes"]["succeeded"] == 2, kubectl.story("ranks")


# Later than a node waits for a word of node 0 once its connection has ended, which must not end before.
KILLED = """
import os, signal, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "3":
    time.sleep(15)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def test_under_mpirun_the_rank_that_failed_is_named_and_none_of_those_that_mpirun_ended_for_it(
    kubectl: Kubectl,
) -> None:
    once = {"maxRestarts": 0}
    # This image has Python, and no mpirun.
    other = scripted("without", config_map="killed", nodes=1, launcher="mpirun")
    other["spec"]["trainer"]["image"] = OPERATOR_IMAGE
    kubectl.apply(
        program("killed", KILLED),
        scripted("killed", config_map="killed", procs=2, launcher="mpirun", restart=once),
        other,
    )
    failure = kubectl.wait_for_phase("killed", "Failed")["status"]["failure"]
    assert (failure["rank"], failure["signal"], failure["pod"]) == (3, "SIGKILL", "killed-a0-1"), failure
    status = kubectl.wait_for_phase("without", "Failed")["status"]
    assert (status["failure"]["reason"], status["attempt"]) == ("CannotStart", 0)
    assert "this image has no mpirun" in status["failure"]["message"]


@pytest.mark.full
def test_a_job_of_mpirun_that_is_suspended_saves_and_goes_on_at_that_step(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", STEADY), resilient("paused", launcher="mpirun"))
    trains(kubectl, "paused")
    kubectl.patch("ddpjob", "paused", {"spec": {"suspend": True}})
    progress = kubectl.wait_for_phase("paused", "Suspended")["status"]["progress"]
    assert progress["step"] == progress["lastCheckpointStep"], kubectl.story("paused")
    kubectl.patch("ddpjob", "paused", {"spec": {"suspend": False}})
    kubectl.wait_for_phase("paused", "Succeeded")
    log = kubectl.logs("paused-a1-0")
    assert resumed_at(log) == progress["step"]
    assert min(losses(log)) == progress["step"] + 1
