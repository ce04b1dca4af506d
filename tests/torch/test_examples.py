"""The programs of the tutorials, started by their well-known command lines."""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from training import TORCHRUN, Training, checkpoints_in, run, succeed, together, torchrun, whole

import ddpjob_trainer.examples
from tests.ports import free_port

EXAMPLES = Path(ddpjob_trainer.examples.__file__).parent
ON_KIND = pytest.mark.full
"""`make test` has this program on kind."""
LIKE_ANOTHER = pytest.mark.full
"""Starts as one of the others does, and then is the same program."""
Start = Callable[[dict[str, str]], Training]
EPOCH = re.compile(r"^\[CPU(\d+)\] Epoch (\d+) \| Batchsize: (\d+) \| Steps: (\d+)$", re.MULTILINE)


def file(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


def python(name: str, *arguments: str) -> list[str]:
    return [sys.executable, file(name), *arguments]


def mpirun(processes: int, *command: str) -> list[str]:
    return ["mpirun", "-np", str(processes), "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", *command]


def line(command: Sequence[str]) -> Start:
    """Starts a program as a user types it."""
    return lambda variables: succeed(command, variables)


def torchruns(processes: int, name: str, *arguments: str) -> Start:
    """Starts the ranks that torchrun would."""
    return lambda variables: whole(processes, file(name), *arguments, variables={**TORCHRUN, **variables})


def epochs(training: Training) -> dict[int, list[tuple[int, int]]]:
    """Rank to what it printed of each epoch: its number and its steps."""
    found: dict[int, list[tuple[int, int]]] = {}
    for rank, epoch, _, steps in EPOCH.findall(training.output):
        found.setdefault(int(rank), []).append((int(epoch), int(steps)))
    return found


@pytest.mark.parametrize(
    ("start", "variables", "ranks", "steps"),
    [
        (line(python("single_gpu", "5", "2")), {}, 1, 64),
        (line(python("multigpu", "5", "2")), {"DDPJOB_PROCS_PER_NODE": "2"}, 2, 32),
        pytest.param(line(torchrun(2, file("multigpu_torchrun"), "5", "2")), {}, 2, 32, marks=LIKE_ANOTHER),
        pytest.param(
            line(torchrun(4, file("multinode"), "--total_epochs", "5", "--save_every", "2", "--batch_size", "32")),
            {},
            4,
            16,
            marks=ON_KIND,
        ),
        # As many ranks as in the tutorial, on two nodes with eight GPUs each.
        pytest.param(
            line(torchrun(16, file("multinode"), "--total_epochs", "5", "--save_every", "2", "--batch_size", "32")),
            {},
            16,
            4,
            marks=LIKE_ANOTHER,
        ),
        pytest.param(line(torchrun(1, file("multinode_ddp"), "5", "2")), {}, 1, 64, marks=LIKE_ANOTHER),
        (line(mpirun(2, *python("pytorch_multinode_ddp_mpi", "5", "2"))), {}, 2, 32),
        (torchruns(2, "pytorch_multinode_ddp_mpi", "5", "2"), {}, 2, 32),
        pytest.param(
            line(python("distributed_data_parallel", "5", "2")),
            {"DDPJOB_PROCS_PER_NODE": "2"},
            2,
            32,
            marks=LIKE_ANOTHER,
        ),
        (torchruns(2, "multinode_torchrun", "5", "2"), {}, 2, 32),
    ],
    ids=[
        "single_gpu",
        "multigpu",
        "multigpu_torchrun",
        "multinode",
        "multinode of 16",
        "multinode_ddp",
        "mpi",
        "mpi_under_torchrun",
        "distributed_data_parallel",
        "multinode_torchrun",
    ],
)
def test_a_program_trains_with_its_own_command_line_and_saves(  # noqa: PLR0917
    request: pytest.FixtureRequest, tmp_path: Path, start: Start, variables: dict[str, str], ranks: int, steps: int
) -> None:
    variables = {**variables, "DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid"), "DDPJOB_CHECKPOINT_KEEP_LAST": "9"}
    training = start(variables)
    replaced = "mpi cannot connect processes started by torchrun: using gloo instead" in training.output
    assert replaced == (request.node.callspec.id == "mpi_under_torchrun")
    assert epochs(training) == {rank: [(epoch, steps) for epoch in range(1, 6)] for rank in range(ranks)}
    losses = [float(loss) for loss in training.losses.values()]
    assert losses[-1] < losses[0] / 3
    saved = [int(name[5:].partition(".")[0]) for name in checkpoints_in(tmp_path / "uid")]
    assert saved == [steps * epoch for epoch in (2, 4, 5)]


def test_under_mpi_all_ranks_stop_after_the_step_that_follows_a_request_however_slow_steps_become() -> None:
    program = Path(__file__).parent / "trainer/programs/asked_under_mpi.py"
    training = run(mpirun(2, sys.executable, str(program)), {"DDPJOB_BACKEND": "mpi"})
    assert training.code == 143, training.output
    assert "stop requested: all ranks stop after step 401 (not saved)" in training.output


def test_a_program_goes_on_where_its_last_snapshot_was(tmp_path: Path) -> None:
    variables = {"DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid")}
    whole(2, file("multinode"), "2", "1", variables=variables)
    again = whole(2, file("multinode"), "3", "1", variables=variables)
    assert "resumed in epoch 3 after step 64" in again.output
    assert epochs(again) == {rank: [(3, 32)] for rank in (0, 1)}


@pytest.mark.parametrize("name", ["multinode_gpu_ddp", "pytorch_multinode_ddp_mpi_gpu"])
def test_missing_gpus_are_requested_in_a_sentence(name: str) -> None:
    training = together(1, file(name), "5", "2")
    assert training.code == 1
    assert f"{name} needs a GPU, but none is visible: request one in spec.trainer.resources" in training.output


# tests/torch/launcher/test_torchrun.py has what the launcher says of it.
@pytest.mark.full
def test_mpi_under_torchrun_would_train_a_model_per_process_and_is_refused() -> None:
    # Real processes: whether MPI is shown is decided where torch is loaded.
    training = run(torchrun(2, file("multinode_ddp"), "5", "2"), {"DDPJOB_BACKEND": "mpi"})
    assert training.code == 1
    assert "under torchrun each of the 2 processes would train its own model. Use mpirun" in training.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "TOTAL_EPOCHS and SAVE_EVERY are required, for example: single_gpu 50 10"),
        (("50",), "TOTAL_EPOCHS and SAVE_EVERY are required"),
        (("50", "10", "--save-every", "3"), "TOTAL_EPOCHS and SAVE_EVERY are required"),
        (("50", "0"), "must be at least 1"),
    ],
)
def test_a_wrong_command_line_is_explained_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    training = together(1, file("single_gpu"), *arguments)
    assert training.code == 2
    assert said in training.output


# tests/torch/launcher/test_launchers.py has the other launcher, with another program.
@pytest.mark.parametrize("launcher", [pytest.param("torch.distributed.launch", marks=pytest.mark.full), "mpirun"])
def test_rank_0_sends_to_all_others_and_the_output_is_the_same_under_both_launchers(launcher: str) -> None:
    port = str(free_port())
    launch = [sys.executable, "-m", "torch.distributed.launch", "--nproc-per-node=3", f"--master-port={port}"]
    command = mpirun(3, *python("message_passing")) if launcher == "mpirun" else [*launch, file("message_passing")]
    training = succeed([*command, "--backend=gloo"], {"MASTER_PORT": port})
    said = sorted(line for line in training.output.splitlines() if line.startswith("Rank "))
    assert said == [
        "Rank 0 sent data to Rank 1",
        "Rank 0 sent data to Rank 2",
        "Rank 1 has received data from rank 0",
        "Rank 2 has received data from rank 0",
    ]


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        (torchrun(2, file("run_with_torchrun")), {}),
        (python("run_with_python"), {"DDPJOB_PROCS_PER_NODE": "2"}),
        (mpirun(2, *python("run_with_mpirun")), {"MASTER_PORT": str(free_port())}),
    ],
    ids=["torchrun", "python", "mpirun"],
)
def test_each_process_says_where_it_is(command: Sequence[str], variables: dict[str, str]) -> None:
    said = succeed(command, variables).output
    places = sorted(re.findall(r"^\S+\$Process (\d): (.*)$", said, re.MULTILINE))
    assert places == [
        ("0", "0 # 2"),
        ("0", "Default device is set to cpu"),
        ("1", "1 # 2"),
        ("1", "Default device is set to cpu"),
    ]


def test_collectives_are_measured_and_checked_for_each_size() -> None:
    said = whole(2, file("collectives"), "--smallest", "64", "--largest", "4K", "--factor", "8").output
    rows = re.findall(r"^(\w+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)$", said, re.MULTILINE)
    names = ("all_reduce", "all_gather", "broadcast", "reduce")
    assert [(name, int(size)) for name, size, *_ in rows] == [
        (name, size) for name in names for size in (64, 512, 4096)
    ]
    # With two ranks a reduced message crosses once, half of a gathered one does.
    share = {"all_reduce": 1.0, "all_gather": 0.5, "broadcast": 1.0, "reduce": 1.0}
    for name, _, _, speed, bus in rows:
        assert float(bus) == pytest.approx(float(speed) * share[name], abs=0.1)


def test_collectives_are_measured_over_mpi_too() -> None:
    measured = mpirun(2, *python("collectives", "--smallest", "64", "--largest", "512", "--factor", "8"))
    said = succeed(measured, {"DDPJOB_BACKEND": "mpi"}).output
    assert re.search(r"^2 ranks on cpu, mpi, torch", said, re.MULTILINE), said
    assert len(re.findall(r"^(?:all_reduce|all_gather|broadcast|reduce) +\d+ +[\d.]+ ", said, re.MULTILINE)) == 4 * 2


def test_a_size_that_is_not_valid_is_named() -> None:
    assert "'4X' is not a size: use bytes, such as 64, 4K" in together(1, file("collectives"), "--largest", "4X").output
