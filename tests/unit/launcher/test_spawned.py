"""A failed process that the program spawned, from what torch says of it."""

import pytest

from ddpjob_launcher.report import Failure
from ddpjob_launcher.spawned import name_spawned

CHILD = 'Traceback (most recent call last):\n  File "train.py", line 9, in train\n    step()\n{error}\n'
RAISED = "-- Process 1 terminated with the following error:\n"
KIND = "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"


def failed(error: str) -> Failure:
    traceback = f'Traceback (most recent call last):\n  File "spawn.py"\n{KIND}{RAISED}{CHILD.format(error=error)}'
    return Failure(f"ProcessRaisedException: \n\n{RAISED}...", 1.0, rank=0, exit_code=1, traceback=traceback)


def exited(how: str) -> Failure:
    return Failure(f"ProcessExitedException: process 1 terminated with {how}", 1.0, rank=0, exit_code=1, traceback="x")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ("ValueError: bad", "ValueError", "ValueError: bad"),
        ("torch.distributed.DistBackendError: NCCL error", "DistBackendError", "DistBackendError: NCCL error"),
        ("ValueError: bad\nbatch", "ValueError", "ValueError: bad\nbatch"),
        ("KeyError", "KeyError", "KeyError"),
    ],
)
def test_the_error_is_that_of_the_spawned_process(error: str, kind: str, message: str) -> None:
    failure = failed(error)
    name_spawned(failure, 1, 0, 2, out_of_memory=False)
    assert (failure.rank, failure.local_rank, failure.exit_code) == (1, 1, 1)
    assert (failure.error_type, failure.message, failure.traceback) == (kind, message, CHILD.format(error=error))


@pytest.mark.parametrize(
    ("how", "grown", "expected"),
    [
        ("signal SIGSEGV", True, ("SIGSEGV", None, "killed by SIGSEGV", False)),
        ("signal SIGKILL", False, ("SIGKILL", None, "killed by SIGKILL", False)),
        ("exit code 7", True, (None, 7, "exit code 7", False)),
    ],
)
def test_the_end_is_that_of_the_spawned_process(
    how: str, expected: tuple[str | None, int | None, str, bool], *, grown: bool
) -> None:
    failure = exited(how)
    name_spawned(failure, 1, 0, 2, out_of_memory=grown)
    assert (failure.signal, failure.exit_code, failure.message, failure.oom) == expected


def test_a_spawned_process_that_the_kernel_killed_ran_out_of_memory() -> None:
    failure = exited("signal SIGKILL")
    name_spawned(failure, 1, 0, 2, out_of_memory=True)
    assert failure.oom
    assert failure.message.startswith("killed by the kernel: out of memory")


@pytest.mark.parametrize(
    ("nodes", "node", "processes", "rank"),
    [(1, 0, 2, 1), (1, 0, 1, 1), (2, 1, 2, 3), (2, 1, 1, None)],
)
def test_the_rank_follows_from_the_number_where_each_node_spawns_what_it_is_asked_for(
    nodes: int, node: int, processes: int, rank: int | None
) -> None:
    failure = failed("ValueError: bad")
    name_spawned(failure, nodes, node, processes, out_of_memory=False)
    assert (failure.rank, failure.local_rank) == (rank, 1)
    assert failure.message == ("ValueError: bad" if rank is not None else "spawned process 1: ValueError: bad")


def test_another_error_stays_as_it_is() -> None:
    failure = Failure(f"ValueError: {RAISED}", 1.0, rank=2, local_rank=0, exit_code=1, traceback=RAISED)
    name_spawned(failure, 2, 1, 2, out_of_memory=True)
    assert failure == Failure(f"ValueError: {RAISED}", 1.0, rank=2, local_rank=0, exit_code=1, traceback=RAISED)
