"""What a process learns from each launcher, and what it says of each misuse."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.process.environment import Backend, Environment, Launcher, MisuseError, parse_environment


def torchrun(rank: int = 3, world_size: int = 4, local_world_size: int = 2, **more: str) -> dict[str, str]:
    """The variables that torchrun gives to a worker."""
    return {
        "TORCHELASTIC_RUN_ID": "uid-0",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % local_world_size),
        "LOCAL_WORLD_SIZE": str(local_world_size),
        "GROUP_RANK": str(rank // local_world_size),
        "MASTER_ADDR": "digits-a0-0.digits",
        "MASTER_PORT": "40123",
        **more,
    }


def mpirun(rank: int = 3, world_size: int = 4, local_world_size: int = 2, **more: str) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local_world_size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_world_size),
        **more,
    }


PYTHON = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "fd00::1", "MASTER_PORT": "29500"}

OPERATOR = {
    "DDPJOB_NAME": "digits",
    "DDPJOB_NAMESPACE": "team",
    "DDPJOB_UID": "0b1c",
    "DDPJOB_ATTEMPT": "2",
    "DDPJOB_NODE_RANK": "1",
    "DDPJOB_NODES": "2",
    "DDPJOB_BACKEND": "gloo",
    "DDPJOB_METRICS_PORT": "9401",
    "DDPJOB_CHECKPOINT_PATH": "/checkpoints",
    "DDPJOB_CHECKPOINT_KEEP_LAST": "5",
    "DDPJOB_RESUME_FROM": "digits-of-monday",
    "DDPJOB_PROGRESS_FILE": "/run/progress.json",
    "DDPJOB_PROGRESS_DEADLINE_SECONDS": "600",
}


def place(found: Environment) -> tuple[int, int, int, int, int]:
    return found.rank, found.world_size, found.local_rank, found.local_world_size, found.node_rank


def test_torchrun_gives_every_number_and_where_to_meet() -> None:
    found = parse_environment(torchrun(TORCHELASTIC_RESTART_COUNT="2"), ["--total-epochs", "3"])
    assert found.launcher is Launcher.TORCHRUN
    assert place(found) == (3, 4, 1, 2, 1)
    assert (found.master_address, found.master_port) == ("digits-a0-0.digits", 40123)
    assert found.restart_count == 2
    assert found.arguments == ("--total-epochs", "3")


@pytest.mark.parametrize(
    "arguments",
    [["--local-rank=1", "50", "10"], ["--local_rank=1", "50", "10"], ["50", "--local-rank", "1", "10"]],
)
def test_the_deprecated_launcher_passes_the_local_rank_in_either_spelling(arguments: list[str]) -> None:
    found = parse_environment(torchrun(), arguments)
    assert found.launcher is Launcher.LAUNCH
    assert found.local_rank == 1
    assert found.arguments == ("50", "10")


def test_what_stands_behind_two_dashes_belongs_to_the_program() -> None:
    found = parse_environment(torchrun(), ["--", "--local-rank=7"])
    assert (found.launcher, found.arguments) == (Launcher.TORCHRUN, ("--", "--local-rank=7"))


def test_mpirun_on_one_node_needs_no_address() -> None:
    found = parse_environment(mpirun(local_world_size=4))
    assert found.launcher is Launcher.MPIRUN
    assert place(found) == (3, 4, 3, 4, 0)
    assert (found.master_address, found.master_port) == ("127.0.0.1", 29500)


def test_mpirun_with_the_backend_mpi_needs_no_address_on_any_number_of_nodes() -> None:
    found = parse_environment(mpirun(DDPJOB_BACKEND="mpi"))
    assert (found.job.backend, found.master_address, found.node_rank) == (Backend.MPI, None, 1)


def test_torchrun_that_mpirun_has_started_counts_as_torchrun() -> None:
    assert parse_environment(torchrun() | mpirun(rank=0, world_size=2)).launcher is Launcher.TORCHRUN


def test_plain_python_is_one_process_a_node_unless_told_otherwise() -> None:
    found = parse_environment(PYTHON)
    assert found.launcher is Launcher.PYTHON
    assert place(found) == (1, 2, 0, 1, 1)
    assert found.master_address == "fd00::1"
    spawned = parse_environment(PYTHON | {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert place(spawned) == (1, 2, 1, 2, 0)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PTY_PORT": "40001"},
        {"PMI_SIZE": "1"},
        {"PMI_SIZE": "4", "DDPJOB_BACKEND": "mpi"},
    ],
    ids=["none", "a batch script", "a terminal", "pmi", "mpi tells it"],
)
def test_without_any_place_a_process_is_alone(variables: Mapping[str, str]) -> None:
    found = parse_environment(variables)
    assert found.launcher is Launcher.SINGLE
    assert place(found) == (0, 1, 0, 1, 0)
    assert found.http_port is None
    assert found.job.name == "local"


def test_the_operator_tells_the_job_and_the_ordinal_under_every_launcher() -> None:
    for variables in (torchrun(), mpirun(MASTER_ADDR="first"), PYTHON):
        found = parse_environment({**variables, **OPERATOR})
        assert found.node_rank == 1
        assert (found.job.name, found.job.namespace, found.job.uid, found.job.attempt) == ("digits", "team", "0b1c", 2)
        assert found.http_port == 9401 + found.local_rank
        assert (found.job.checkpoint_path, found.job.progress_file) == ("/checkpoints", "/run/progress.json")
        assert found.job.progress_deadline_seconds == 600
        assert (found.job.checkpoint_keep_last, found.job.resume_from) == (5, "digits-of-monday")


@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        (torchrun() | {"RANK": ""}, [], "RANK is not set: torchrun sets it"),
        (torchrun() | {"RANK": "three"}, [], "RANK='three' must be a whole number"),
        (torchrun() | {"RANK": "4"}, [], "rank 4 does not exist among 4 processes"),
        (torchrun() | {"LOCAL_RANK": "2"}, [], "local rank 2 does not exist among 2"),
        (torchrun() | {"LOCAL_WORLD_SIZE": "8"}, [], "8 processes per node, but only 4 in total"),
        (torchrun() | {"WORLD_SIZE": "0"}, [], "WORLD_SIZE=0 must be at least 1"),
        (torchrun() | {"MASTER_PORT": "70000"}, [], "MASTER_PORT=70000 must be from 1 to 65535"),
        (torchrun() | {"MASTER_ADDR": ""}, [], "MASTER_ADDR is not set"),
        (torchrun(), ["--local-rank=0"], "--local-rank=0 contradicts LOCAL_RANK=1"),
        (torchrun(), ["--local-rank=1", "--local_rank=0"], "given twice, as 1 and as 0"),
        (torchrun(), ["--local-rank"], "--local-rank must be a whole number, not ''"),
        ({}, ["--local-rank=0"], "the other variables of torch.distributed.launch are missing"),
        (mpirun() | {"OMPI_COMM_WORLD_SIZE": ""}, [], "OMPI_COMM_WORLD_SIZE is not set"),
        (mpirun(), [], "mpirun on several nodes set it to the host of rank 0"),
        (mpirun(local_world_size=4) | {"RANK": "0"}, [], "RANK=0 contradicts mpirun, which assigned 3"),
        ({"RANK": "0"}, [], "WORLD_SIZE is not set: without a launcher"),
        ({"LOCAL_RANK": "0"}, [], "RANK is not set: without a launcher"),
        (PYTHON | {"MASTER_ADDR": ""}, [], "MASTER_ADDR is not set: without a launcher"),
        (PYTHON | {"LOCAL_RANK": "1"}, [], "LOCAL_RANK=1 without LOCAL_WORLD_SIZE"),
        ({"DDPJOB_NODES": "2"}, [], "it would train alone"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, [], "SLURM_STEP_NUM_TASKS=4: srun has started 4 processes, and each would"),
        ({"PMI_SIZE": "2"}, [], "PMI_SIZE=2: MPICH's mpirun has started 2 processes, and each would"),
        ({"DDPJOB_BACKEND": "smoke"}, [], "DDPJOB_BACKEND='smoke' must be one of auto, gloo, nccl, mpi"),
        ({"DDPJOB_METRICS_PORT": "0"}, [], "DDPJOB_METRICS_PORT=0 must be from 1 to 65535"),
    ],
)
def test_each_misuse_has_a_message_that_names_it(
    variables: Mapping[str, str], arguments: list[str], message: str
) -> None:
    with pytest.raises(MisuseError) as misuse:
        parse_environment(variables, arguments)
    assert message in str(misuse.value)


@given(st.integers(1, 64), st.integers(1, 16), st.data())
def test_all_ranks_of_a_training_have_places_that_fit_together(nodes: int, processes: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, nodes * processes - 1))
    for launched in (torchrun, mpirun):
        variables = launched(rank, nodes * processes, processes, MASTER_ADDR="first")
        found = parse_environment(variables)
        assert found.node_rank * processes + found.local_rank == rank


NAMES = st.sampled_from([*torchrun(), *mpirun(), *OPERATOR, "NODE_RANK", "PATH"])
VALUES = st.one_of(
    st.integers(-2, 70000).map(str), st.text(max_size=4), st.sampled_from(["gloo", "auto", "\u0661", "1_0"])
)


@given(st.dictionaries(NAMES, VALUES), st.lists(st.one_of(st.just("--local-rank"), st.text(max_size=12))))
def test_any_environment_is_either_a_sound_place_or_a_misuse(variables: dict[str, str], arguments: list[str]) -> None:
    try:
        found = parse_environment(variables, arguments)
    except MisuseError:
        return
    assert 0 <= found.rank < found.world_size
    assert 0 <= found.local_rank < found.local_world_size <= found.world_size
    assert (found.master_address is None) == (found.master_port is None)
