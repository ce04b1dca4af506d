"""Launch lines of the tutorials: typed by hand, and as the jobs that `ddpjob from-...` makes of them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import TRAINER_IMAGE
from kubectl import Kubectl, wait_until
from typer.testing import CliRunner

from ddpjob.cli.app import app

pytestmark = [pytest.mark.timeout(600), pytest.mark.pod_security("baseline")]

# What each of the programs finds, however it was started; plain python says nothing, which is rank 0 of 1.
PLACE = """
import json, os, sys

def told(*names):
    return next((int(os.environ[name]) for name in names if name in os.environ), None)

place = {
    "program": os.path.basename(sys.argv[0]),
    "rank": told("RANK", "OMPI_COMM_WORLD_RANK") or 0,
    "size": told("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE") or 1,
    "arguments": [argument for argument in sys.argv[1:] if not argument.startswith("--local")],
}
# In one piece: all ranks write into one log.
os.write(1, f"PLACE {json.dumps(place)}\\n".encode())
"""
TUTORIAL = "distributed/ddp-tutorial-series"
SCRATCH = "scratch/intro-to-pytorch/src"


@dataclass(frozen=True)
class Typed:
    """A launch line as it is typed on a node, with `{rank}` of the node and the addresses of the nodes left open."""

    line: str
    nodes: int = 1


LINES = {
    "single-gpu": Typed(f"python3 {TUTORIAL}/single_gpu.py 50 10"),
    # For `gpu` there have to be some.
    "multigpu-torchrun": Typed(f"torchrun --standalone --nproc_per_node=2 {TUTORIAL}/multigpu_torchrun.py 50 10"),
    "multinode": Typed(
        "torchrun --nproc_per_node=8 --nnodes=2 --node-rank={rank} --rdzv-id=456 --rdzv-backend=c10d "
        f"--rdzv-endpoint={{first6}}:29603 {TUTORIAL}/multinode.py --total_epochs 50 --save_every 10 --batch_size 32",
        nodes=2,
    ),
    "one-node": Typed("torchrun --nproc_per_node=4 train.py"),
    "run-with-mpirun": Typed("mpirun -np 4 python3 run_with_mpirun.py"),
    "launch": Typed(
        "python3 -m torch.distributed.launch --nproc_per_node=2 --nnodes=2 --node_rank={rank} --master_addr={first} "
        "--master_port=1234 message-passing/main.py --backend=gloo",
        nodes=2,
    ),
    "mpirun": Typed(
        "mpirun -np 4 -H {first}:2,{second}:2 -x MASTER_ADDR={first} -x MASTER_PORT=1234 -x PATH -bind-to none "
        "-map-by slot -mca pml ob1 -mca btl ^openib python3 message-passing/main_mpirun.py --backend=gloo",
    ),
}
# The same as some of the above, or of the script below, with another program and other numbers.
MULTINODE_DDP = Typed(
    "torchrun --nproc-per-node=1 --nnodes=2 --node-rank={rank} --rdzv-id=456 --rdzv-backend=c10d "
    "--rdzv-endpoint={first}:29603 multinode_ddp.py 1000 1000",
    nodes=2,
)
ALIKE = {
    program.replace("_", "-"): Typed(MULTINODE_DDP.line.replace("multinode_ddp", program), nodes=2)
    for program in ("multinode_ddp", "multinode_gpu_ddp", "pytorch_multinode_ddp_mpi", "pytorch_multinode_ddp_mpi_gpu")
} | {
    "multigpu": Typed(f"python3 {TUTORIAL}/multigpu.py 50 10"),
    "run-with-python": Typed("python3 run_with_python.py"),
    "run-with-torchrun": Typed("torchrun --nproc_per_node=2 run_with_torchrun.py"),
    "two-nodes": Typed(
        "torchrun --nproc_per_node=4 --nnodes=2 --node_rank={rank} "
        '--master_addr="{first}" --master_port=12345 train.py',
        nodes=2,
    ),
}
# Typed by hand all nodes are one; a pod of a cluster without IPv6 has no ::1 either.
HERE = {"first": "127.0.0.1", "second": "localhost", "first6": "127.0.0.1"}
THERE = {"first": "104.171.200.62", "second": "104.171.200.182", "first6": "[fd00::6:1]"}
PBS = f"""\
#!/bin/bash
#PBS -P vp91
#PBS -q gpuvolta
#PBS -l ncpus=2
#PBS -l mem=4GB
#PBS -l walltime=00:05:00
#PBS -N pbs
module load python3/3.11.0
python3 /{SCRATCH}/distributed_data_parallel.py
NODES=$(cat $PBS_NODEFILE | uniq)
NODE_ARR=($NODES)
MASTER_ADDR=${{NODE_ARR[0]}}
MASTER_PORT=12355
NNODES=2
NPROC_PER_NODE=4
torchrun --nnodes=$NNODES --nproc_per_node=$NPROC_PER_NODE \\
         --node_rank=$PBS_NODEID --master_addr=$MASTER_ADDR \\
         --master_port=$MASTER_PORT /{SCRATCH}/multinode_torchrun.py
"""
# What the script comes to on its nodes.
LINES_OF_PBS = {
    "pbs-1": Typed(f"python3 /{SCRATCH}/distributed_data_parallel.py"),
    "pbs-2": Typed(
        "torchrun --nnodes=2 --nproc_per_node=4 --node_rank={rank} --master_addr={first} --master_port=12355 "
        f"/{SCRATCH}/multinode_torchrun.py",
        nodes=2,
    ),
}
PROGRAMS = {
    match
    for line in (*(typed.line for typed in (LINES | ALIKE).values()), PBS)
    for match in re.findall(r"\S+\.py", line)
}
ROOT = "/tutorials"


def by_hand(typed: Typed) -> str:
    """Shell code that types a line on all its nodes at once, which are all this one, and waits for them."""
    lines = (typed.line.format(rank=rank, **HERE) for rank in range(typed.nodes))
    begun = "; ".join(f"{line} & pids+=($!)" for line in lines)
    return f"pids=(); {begun}; " + 'for pid in "${pids[@]}"; do wait $pid || exit 1; done'


def mounted(spec: dict[str, Any]) -> dict[str, Any]:
    """A pod's spec whose container has all programs in its working folder, and those with absolute paths there."""
    container = spec["containers"][0] if "containers" in spec else spec["trainer"]
    volumes = [{"name": "programs", "configMap": {"name": "programs", "items": _items()}}]
    container["workingDir"] = ROOT
    container["volumeMounts"] = [
        {"name": "programs", "mountPath": ROOT},
        {"name": "programs", "mountPath": f"/{SCRATCH}", "subPath": SCRATCH},
    ]
    if "containers" in spec:
        return {**spec, "volumes": volumes}
    return {**spec, "template": {"spec": {"volumes": volumes}}}


def _items() -> list[dict[str, str]]:
    return [{"key": "place.py", "path": path.lstrip("/")} for path in sorted(PROGRAMS)]


def places(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line.removeprefix("PLACE ")) for line in text.splitlines() if line.startswith("PLACE ")]
    return sorted(found, key=lambda place: (place["program"], place["rank"]))


def converted(*command: str) -> list[dict[str, Any]]:
    """The jobs that the command line makes of a launch line or a script, with the programs where the lines say."""
    done = CliRunner().invoke(app, [command[0], "--image", TRAINER_IMAGE, *command[1:]])
    assert done.exit_code == 0, done.stderr
    jobs: list[dict[str, Any]] = list(yaml.safe_load_all(done.stdout))
    for job in jobs:
        job["spec"] = mounted(job["spec"])
    return jobs


def jobs_of(lines: Mapping[str, Typed]) -> list[dict[str, Any]]:
    return [
        job
        for name, each in lines.items()
        for job in converted("from-torchrun", "--name", name, each.line.format(rank=0, **THERE))
    ]


def apply(kubectl: Kubectl, typed: Mapping[str, Typed], *jobs: dict[str, Any]) -> None:
    """Start a pod in which the lines are typed one after the other, and jobs."""
    script = "; ".join([*(f"echo LINE {name}; {by_hand(line)}" for name, line in typed.items()), "echo LINE end"])
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "by-hand"},
        "spec": mounted(
            {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "shell",
                        "image": TRAINER_IMAGE,
                        "command": ["bash", "-c", script],
                        # A machine where mpirun is typed has as many cores as processes, or this.
                        "env": [{"name": "PRTE_MCA_rmaps_default_mapping_policy", "value": ":oversubscribe"}],
                    }
                ],
            }
        ),
    }
    programs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "programs"},
        "data": {"place.py": PLACE},
    }
    kubectl.apply(programs, pod, *jobs)


def said_by_jobs(kubectl: Kubectl, names: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """What the ranks of each job have found, once it has succeeded."""
    said: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        job = kubectl.wait_for_phase(name, "Succeeded", timeout=300)
        logs = [kubectl.logs(f"{name}-a0-{ordinal}") for ordinal in range(job["spec"]["nodes"])]
        said[name] = places("\n".join(logs))
    return said


def said_by_hand(kubectl: Kubectl) -> dict[str, list[dict[str, Any]]]:
    """What the ranks of each line have found that was typed, once all have ended."""

    def has_ended() -> bool:
        phase = kubectl("get", "pod", "by-hand", "-o", "jsonpath={.status.phase}")
        assert phase != "Failed", kubectl("logs", "by-hand", "--tail=40")
        return phase == "Succeeded"

    wait_until(has_ended, "the lines that are typed by hand to end", 300, lambda: kubectl("logs", "by-hand"))
    found = re.findall(r"^LINE (\S+)\n(.*?)(?=^LINE )", kubectl("logs", "by-hand"), re.DOTALL | re.MULTILINE)
    return {name: places(text) for name, text in found}


def test_a_converted_launch_line_starts_the_same_ranks_as_the_line_typed_by_hand(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    typed = {**LINES, **LINES_OF_PBS}
    (tmp_path / "job.pbs").write_text(PBS)
    before, after = converted("from-pbs", str(tmp_path / "job.pbs"))
    apply(kubectl, typed, before, *jobs_of(LINES))
    # In the order of the script: its second line when the first has succeeded.
    kubectl.wait_for_phase("pbs-1", "Succeeded", timeout=300)
    kubectl.apply(after)
    said = said_by_jobs(kubectl, typed)
    assert said_by_hand(kubectl) == said
    assert [place["size"] for place in said["multinode"]] == [16] * 16
    assert [place["size"] for place in said["pbs-2"]] == [8] * 8


@pytest.mark.full
def test_the_lines_that_have_only_another_program_do_too(kubectl: Kubectl) -> None:
    apply(kubectl, ALIKE, *jobs_of(ALIKE))
    said = said_by_jobs(kubectl, ALIKE)
    assert said_by_hand(kubectl) == said
    sizes = {name: [place["size"] for place in found] for name, found in said.items()}
    others = {"multigpu": [1], "run-with-python": [1], "two-nodes": [8] * 8}
    assert sizes == {name: [2, 2] for name in ALIKE} | others
