"""The launch lines of the PyTorch tutorials as jobs."""

from typing import Any

import pytest
from converting import ALL, about, line, spec, told

from ddpjob_core.api.errors import UsageProblem

TORCHRUN_000 = (
    "torchrun --nproc-per-node=1 --nnodes=2 --node-rank=0 --rdzv-id=456 --rdzv-backend=c10d "
    "--rdzv-endpoint=10.0.0.1:29603 {} 1000 1000"
)
C10D_29603 = {"backend": "c10d", "port": 29603}
TUTORIAL = "distributed/ddp-tutorial-series"
MULTINODE_001 = """\
torchrun \\
--nproc_per_node=8 \\
--nnodes=2 \\
--node-rank={} \\
--rdzv-id=456 \\
--rdzv-backend=c10d \\
--rdzv-endpoint=[ipv6_address_master_node]:29603 \\
basic_parallelization/distributed/ddp-tutorial-series/multinode.py --total_epochs 50 --save_every 10 --batch_size 32
"""
SPEC_MULTINODE_001 = {
    "nodes": 2,
    "procsPerNode": 8,
    "rendezvous": C10D_29603,
    "trainer": {
        "script": f"basic_parallelization/{TUTORIAL}/multinode.py",
        "args": ["--total_epochs", "50", "--save_every", "10", "--batch_size", "32"],
    },
}
SSH_002 = (
    'torchrun --nnodes=2 --nproc_per_node=4 --node_rank={} --master_addr="<Node1 IP>" --master_port=12355 '
    "/scratch/vp91/$USER/intro-to-pytorch/src/multinode_torchrun.py"
)
SPEC_SSH_002 = {
    "nodes": 2,
    "procsPerNode": 4,
    "rendezvous": {"backend": "static", "port": 12355},
    "trainer": {"script": "/scratch/vp91/$USER/intro-to-pytorch/src/multinode_torchrun.py"},
}
MULTINODE_003 = """\
torchrun --nproc_per_node=4 --nnodes=2 --node_rank={} \\
         --master_addr="10.0.0.1" --master_port=12345 train.py
"""
SPEC_MULTINODE_003 = {
    "nodes": 2,
    "procsPerNode": 4,
    "rendezvous": {"backend": "static", "port": 12345},
    "trainer": {"script": "train.py"},
}
LAUNCH_004 = """\
python3 -m torch.distributed.launch \\
--nproc_per_node=2 --nnodes=2 --node_rank={} \\
--master_addr=104.171.200.62 --master_port=1234 \\
message-passing/main.py \\
--backend=nccl
"""
SPEC_LAUNCH_004 = {
    "nodes": 2,
    "procsPerNode": 2,
    "launcher": "torch.distributed.launch",
    "rendezvous": {"backend": "static", "port": 1234},
    "backend": "nccl",
    "trainer": {"script": "message-passing/main.py", "args": ["--backend=nccl"]},
}
MPIRUN_004 = """\
mpirun -np 4 \\
-H 104.171.200.62:2,104.171.200.182:2 \\
-x MASTER_ADDR=104.171.200.62 \\
-x MASTER_PORT=1234 \\
-x PATH \\
-bind-to none -map-by slot \\
-mca pml ob1 -mca btl ^openib \\
python3 message-passing/main_mpirun.py --backend=nccl
"""


@pytest.mark.usefixtures("whole_api")
@pytest.mark.parametrize(
    ("launch_line", "expected"),
    [
        *(
            (
                TORCHRUN_000.format(script),
                {
                    "nodes": 2,
                    "procsPerNode": 1,
                    "rendezvous": C10D_29603,
                    "trainer": {"script": script, "args": ["1000", "1000"]},
                },
            )
            for script in (
                "multinode_ddp.py",
                "multinode_gpu_ddp.py",
                "pytorch_multinode_ddp_mpi.py",
                "pytorch_multinode_ddp_mpi_gpu.py",
            )
        ),
        *(
            (
                f"python {TUTORIAL}/{script} 50 10",
                {
                    "nodes": 1,
                    "procsPerNode": 1,
                    "launcher": "python",
                    "trainer": {"script": f"{TUTORIAL}/{script}", "args": ["50", "10"]},
                },
            )
            for script in ("single_gpu.py", "multigpu.py")
        ),
        (
            f"torchrun --standalone --nproc_per_node=gpu {TUTORIAL}/multigpu_torchrun.py 50 10",
            {
                "nodes": 1,
                "procsPerNode": "auto",
                "trainer": {"script": f"{TUTORIAL}/multigpu_torchrun.py", "args": ["50", "10"]},
            },
        ),
        *((MULTINODE_001.format(rank), SPEC_MULTINODE_001) for rank in (0, 1)),
        *((SSH_002.format(rank), SPEC_SSH_002) for rank in (0, 1)),
        (
            "torchrun --nproc_per_node=4 train.py",
            {"nodes": 1, "procsPerNode": 4, "trainer": {"script": "train.py"}},
        ),
        (
            "torchrun --nproc_per_node=2 run_with_torchrun.py",
            {"nodes": 1, "procsPerNode": 2, "trainer": {"script": "run_with_torchrun.py"}},
        ),
        *((MULTINODE_003.format(rank), SPEC_MULTINODE_003) for rank in (0, 1)),
        (
            "mpirun -np 4 python run_with_mpirun.py",
            {"nodes": 1, "procsPerNode": 4, "launcher": "mpirun", "trainer": {"script": "run_with_mpirun.py"}},
        ),
        (
            "python run_with_python.py",
            {"nodes": 1, "procsPerNode": 1, "launcher": "python", "trainer": {"script": "run_with_python.py"}},
        ),
        *((LAUNCH_004.format(rank), SPEC_LAUNCH_004) for rank in (0, 1)),
        (
            MPIRUN_004,
            {
                "nodes": 2,
                "procsPerNode": 2,
                "launcher": "mpirun",
                "rendezvous": {"port": 1234},
                "backend": "nccl",
                "trainer": {"script": "message-passing/main_mpirun.py", "args": ["--backend=nccl"]},
            },
        ),
    ],
)
def test_every_launch_line_of_the_tutorials_becomes_the_job_that_it_means(
    launch_line: str, expected: dict[str, Any]
) -> None:
    assert spec(line(launch_line, supported=ALL)) == expected


def test_the_pattern_of_a_launch_line_is_refused_until_its_number_of_nodes_is_filled_in() -> None:
    pattern = (
        "torchrun --nproc-per-node=1 --nnodes=<number_of_nodes> --node-rank=<rank_of_node> --rdzv-id=456 "
        "--rdzv-backend=c10d --rdzv-endpoint=<rank_0_node>:29603 <code>.py <parameters>"
    )
    with pytest.raises(UsageProblem, match=r"script:1: spec\.nodes: --nnodes=<number_of_nodes>") as refused:
        line(pattern)
    assert refused.value.remedy == "replace it with the number"
    converted = line(pattern.replace("<number_of_nodes>", "2"))
    assert spec(converted)["trainer"] == {"script": "<code>.py", "args": ["<parameters>"]}
    assert "replace it with its value" in about(converted, "<parameters>")


def test_two_lines_for_two_nodes_are_one_job() -> None:
    converted = line(MULTINODE_001.format(0) + MULTINODE_001.format(1))
    assert spec(converted) == SPEC_MULTINODE_001
    assert "one job starts all nodes" in about(converted, "--node-rank=1")


def test_all_that_is_not_carried_over_from_the_first_tutorial_is_reported_with_its_text() -> None:
    text = TORCHRUN_000.format("multinode_ddp.py")
    assert told(line(text, gpus=0)) == [
        (1, "--node-rank=0", "not needed: the ordinal of a pod is the rank of its node"),
        (1, "--rdzv-id=456", "not needed: every attempt of the job gets its own ID"),
        (
            1,
            "--rdzv-endpoint=10.0.0.1:29603",
            "the pod of node 0 replaces 10.0.0.1; its port is carried over",
        ),
        (
            1,
            "multinode_ddp.py",
            "the image, or a volume of spec.template, must contain this file; relative to spec.trainer.workingDir",
        ),
    ]


def test_a_note_has_the_line_that_it_is_about() -> None:
    found = {text: number for number, text, _ in told(line(MPIRUN_004, supported=ALL))}
    assert found["-x PATH"] == 5
    assert found["-bind-to none"] == found["-map-by slot"] == 6
    assert found["-mca btl ^openib"] == 7
