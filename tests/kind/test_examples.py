"""The manifests in manifests/examples, applied as they are."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from jobs import EXAMPLES_IMAGE, TRAINER_IMAGE
from kubectl import Kubectl, wait_until

from hack.cache import ROOT

EPOCH = re.compile(r"\[CPU(\d+)\] Epoch (\d+) \| Batchsize: 32 \| Steps: (\d+)")
PLACE = re.compile(r"^\S+\$Process (\d): (\d) # (\d)$", re.MULTILINE)
# Name to epochs, processes in all, and steps of an epoch.
TRAININGS = {
    "single-gpu": (20, 1, 64),
    "multigpu": (20, 2, 32),
    "multigpu-torchrun": (20, 2, 32),
    "multinode": (20, 4, 16),
    "multinode-ddp": (20, 2, 32),
    "distributed-data-parallel": (20, 2, 32),
    "multinode-torchrun": (20, 4, 16),
    "pytorch-multinode-ddp-mpi": (20, 2, 32),
}
# Name to epochs, processes in all, and steps of an epoch; of programs that tell their accuracy on held-out images.
ON_IMAGES = {
    "huggingface-mnist": (4, 4, 63),
    "huggingface-mnist-nodes": (4, 8, 63),
    "resnet": (5, 4, 8),
}
# tests/torch starts others, by the lines that they are known by, and test_launchers.py has mpirun.
SOME = ("multinode",)
DIGEST = re.compile(r"^\[CPU(\d+)\] World size (\d+) \| Parameters sha256 ([0-9a-f]{64})$", re.MULTILINE)
ACCURACY = re.compile(r"^Accuracy (\d\.\d+) on \d+ held-out images$", re.MULTILINE)

pytestmark = pytest.mark.timeout(600)


def example(name: str) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((ROOT / f"manifests/examples/{name}.yaml").read_text())
    trainer = job["spec"]["trainer"]
    trainer["image"] = EXAMPLES_IMAGE if name in ON_IMAGES else TRAINER_IMAGE
    # 1,000 epochs show nothing that 20 do not, nor 50.
    trainer["args"] = ["20" if argument in {"50", "1000"} else argument for argument in trainer.get("args", [])]
    return job


def output(kubectl: Kubectl, name: str) -> list[str]:
    """What each node of an example printed, once it has succeeded."""
    job = kubectl.wait_for_phase(name, "Succeeded", timeout=500)
    assert job["status"]["attempt"] == 0, kubectl.story(name)
    return [kubectl.logs(f"{name}-a0-{ordinal}") for ordinal in range(job["spec"]["nodes"])]


@pytest.mark.parametrize(
    "names",
    [SOME, pytest.param([name for name in TRAININGS if name not in SOME], marks=pytest.mark.full)],
    ids=["some", "others"],
)
def test_a_tutorial_trains_on_as_many_processes_as_its_launch_line_says(kubectl: Kubectl, names: Sequence[str]) -> None:
    kubectl.apply(*map(example, names))
    for name in names:
        epochs, processes, steps = TRAININGS[name]
        said = "".join(output(kubectl, name))
        # Under mpirun MPI knows the processes.
        assert "takes its place" not in said, name
        lines = EPOCH.findall(said)
        assert sorted((int(rank), int(epoch), int(count)) for rank, epoch, count in lines) == [
            (rank, epoch, steps) for rank in range(processes) for epoch in range(1, epochs + 1)
        ], name
        progress = kubectl.job(name)["status"]["progress"]
        assert (progress["epoch"], progress["step"]) == (epochs, epochs * steps), name


# tests/examples trains both with two processes in minutes less.
@pytest.mark.full
@pytest.mark.parametrize("name", list(ON_IMAGES))
def test_a_trainer_of_another_library_and_a_resnet_learn_images_and_show_how_far_they_are(
    kubectl: Kubectl, name: str
) -> None:
    epochs, processes, steps = ON_IMAGES[name]
    kubectl.apply(example(name))
    said = "".join(output(kubectl, name))
    ranks = DIGEST.findall(said)
    assert sorted((int(rank), int(size)) for rank, size, _ in ranks) == [(rank, processes) for rank in range(processes)]
    assert len({digest for _, _, digest in ranks}) == 1
    (accuracy,) = ACCURACY.findall(said)
    assert float(accuracy) > 0.9
    progress = kubectl.job(name)["status"]["progress"]
    assert (progress["epoch"], progress["totalEpochs"], progress["step"]) == (epochs, epochs, epochs * steps)
    assert progress["loss"] < 0.5


@pytest.mark.full
def test_messages_are_passed_places_told_and_collectives_measured(kubectl: Kubectl) -> None:
    places = {"run-with-torchrun": 2, "run-with-python": 2, "run-with-mpirun": 4}
    kubectl.apply(*map(example, ("message-passing", "message-passing-mpirun", "collectives", *places)))
    first, second = output(kubectl, "message-passing")
    assert sorted(line for line in first.splitlines() if line.startswith("Rank")) == [
        "Rank 0 sent data to Rank 1",
        "Rank 0 sent data to Rank 2",
        "Rank 0 sent data to Rank 3",
        "Rank 1 has received data from rank 0",
    ]
    assert sorted(line for line in second.splitlines() if line.startswith("Rank")) == [
        "Rank 2 has received data from rank 0",
        "Rank 3 has received data from rank 0",
    ]
    # mpirun hands on what all ranks print.
    all_of_them, _ = output(kubectl, "message-passing-mpirun")
    assert sorted(line for line in all_of_them.splitlines() if line.startswith("Rank")) == sorted(
        line for line in (first + second).splitlines() if line.startswith("Rank")
    )
    for name, processes in places.items():
        (said,) = output(kubectl, name)
        expected = [(str(rank), str(rank), str(processes)) for rank in range(processes)]
        assert sorted(PLACE.findall(said)) == expected, name
    table = output(kubectl, "collectives")[0]
    assert re.search(r"^2 ranks on cpu, gloo, torch", table, re.MULTILINE)
    assert len(re.findall(r"^(?:all_reduce|all_gather|broadcast|reduce) +\d+ +[\d.]+ ", table, re.MULTILINE)) == 4 * 8


def test_the_doctor_says_of_each_rank_what_it_has_and_of_all_that_they_meet(kubectl: Kubectl) -> None:
    kubectl.apply(example("doctor"))
    first, second = output(kubectl, "doctor")
    assert "FAIL" not in first + second
    for rank, said in enumerate((first, first, second, second)):
        node = rank // 2
        assert f"[rank {rank}] ok   torchrun: rank {rank} of 4, on node {node} (doctor-a0-{node})" in said
        resolves = rf"^\[rank {rank}\] ok   MASTER_ADDR=doctor-a0-0\.\S* resolves to [0-9a-f]"
        assert re.search(resolves, said, re.MULTILINE)
        assert f"[rank {rank}] ok   port {9401 + rank % 2} for metrics and progress is free" in said
    assert "[rank 0] ok   all 4 ranks have the same versions and devices" in first
    assert "[rank 0] ok   all_reduce over gloo among 4 ranks gives 6, expected 6" in first


def test_a_training_for_gpus_says_on_a_cluster_without_them_what_it_waits_for(kubectl: Kubectl) -> None:
    kubectl.apply(example("multinode-gpu-ddp"))
    wait_until(
        lambda: "Insufficient nvidia.com/gpu" in kubectl("describe", "ddpjob", "multinode-gpu-ddp"),
        "the status to say what is missing",
        story=lambda: kubectl.story("multinode-gpu-ddp"),
    )
    status = kubectl.job("multinode-gpu-ddp")["status"]
    assert status["phase"] in ("Pending", "Starting")
    assert (status["backend"], status["procsPerNode"]) == ("nccl", 1)
    kubectl("delete", "ddpjob", "multinode-gpu-ddp")
