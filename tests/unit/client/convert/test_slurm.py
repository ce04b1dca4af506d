"""The directives of Slurm."""

import pytest
from converting import asked_of_slurm

from ddpjob.convert import slurm
from ddpjob.convert.resources import Resources


@pytest.mark.parametrize(
    ("lines", "nodes", "tasks", "each"),
    [
        (["--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4"], 2, 4, Resources(gpus=4)),
        (["-N 2 -n 8 -c 6 --mem=64G"], 2, 4, Resources(24, 64 * 1024**3)),
        (["-N2 -c6"], 2, None, Resources(6)),
        (["--ntasks=8 --ntasks-per-node=4"], 2, 4, Resources()),
        (["--nodes 2-4"], 4, None, Resources()),
        (["--gres=gpu:4 -N 1"], 1, None, Resources(gpus=4)),
        (["--gres=gpu:a100:2,nvme:1 -N 1"], 1, None, Resources(gpus=2)),
        (["--gres gpu -N 1"], 1, None, Resources(gpus=1)),
        (["--gpus-per-node=h100:8 -N 1"], 1, None, Resources(gpus=8)),
        (["--gpus-per-task=1 --ntasks-per-node=4 -N 2"], 2, 4, Resources(gpus=4)),
        (["-G 8 -N 2"], 2, None, Resources(gpus=4)),
        (["--mem-per-cpu=2G -c 4 -N 1"], 1, None, Resources(4, 8 * 1024**3)),
        (["--mem-per-gpu=10G --gpus-per-node=4 -N 1"], 1, None, Resources(memory=40 * 1024**3, gpus=4)),
        (["--cpus-per-gpu=8 --gpus-per-node=4 -N 1"], 1, None, Resources(32, None, 4)),
        (["--mem=0 --nodes=x"], None, None, Resources()),
    ],
)
def test_what_slurm_is_asked_for_is_that_of_a_node(
    lines: list[str], nodes: int | None, tasks: int | None, each: Resources
) -> None:
    allocation, _ = asked_of_slurm(*lines)
    assert (allocation.nodes, allocation.tasks.per_node, allocation.each) == (nodes, tasks, each)


def test_gpus_of_all_nodes_wait_for_the_number_of_nodes() -> None:
    allocation, _ = asked_of_slurm("--gpus=8")
    assert allocation.total == Resources(gpus=8)


@pytest.mark.parametrize("option", sorted({*slurm._NOTES, "odd"}))
def test_every_other_option_of_slurm_is_reported(option: str) -> None:
    _, notes = asked_of_slurm(f"--{option}=value")
    assert [note.text for note in notes] == [f"#SBATCH --{option}=value"]
    assert notes[0].message.startswith("not carried over: ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("--gres=gpu:a100:2", "the GPU type a100 is not carried over"),
        ("--gres=nvme:1", "nvme:1 is not carried over"),
        ("--mem=0", "all the memory of a node is not carried over"),
        ("--nodes=1-4", "a job has a fixed size: the maximum, 4"),
        ("--time=UNLIMITED", "set spec.activeDeadlineSeconds for one"),
        ("--ntasks=x", "not a valid number"),
        ("--export=ALL,A=1", "ALL is not carried over"),
        ("--export=NONE,RANK=1", "the launcher sets RANK"),
    ],
)
def test_what_of_slurms_numbers_is_lost_is_reported(lines: str, message: str) -> None:
    _, notes = asked_of_slurm(lines)
    assert any(message in note.message for note in notes)
