"""A rank that is killed is replaced; the others keep their processes, and all that they have in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers, wait_until
from survivors import Ranks, kill, train

pytest.importorskip("torch")

PROGRAM = Path(__file__).parents[1] / "trainer" / "programs" / "surviving.py"
LAST = 96
"""Steps of three epochs with four ranks."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def _train(job: Job, *arguments: str, **options: str) -> tuple[tuple[Node, Node], Ranks]:
    return train(job, PROGRAM.read_text(), *arguments, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch, launchers(tmp_path_factory.mktemp("undisturbed"), patch) as job:
        nodes, ranks = _train(job, STEP_SECONDS="0")
        assert [node.end() for node in nodes] == [0, 0], ranks.output
        (end,) = ranks.ends
        return end


@pytest.mark.parametrize("rank", [3, pytest.param(0, marks=pytest.mark.full)])
def test_the_others_keep_their_processes_and_no_step_is_lost(job: Job, undisturbed: str, rank: int) -> None:
    nodes, ranks = _train(job)
    killed = ranks.wait_for(rank, 10)
    kill(killed)
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    for other in set(range(4)) - {rank}:
        steps = ranks.steps(other)
        assert len({process for process, _ in steps}) == 1
        assert [step for _, step in steps] == list(range(1, LAST + 1))
    assert {process for process, _ in ranks.steps(rank)} > {killed}
    # Bit by bit what came of the same training without the loss.
    assert ranks.ends == {undisturbed}
    node = nodes[rank // 2]
    assert node.report["processRestarts"] == 1
    assert f"rank {rank}: killed by SIGKILL: another process takes its place while the other ranks go on" in node.output


@pytest.mark.full
def test_the_new_rank_0_gives_the_others_neither_its_weights_nor_another_average(
    job: Job, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch, launchers(tmp_path_factory.mktemp("undisturbed"), patch) as other:
        nodes, ranks = _train(other, "average", STEP_SECONDS="0")
        assert [node.end() for node in nodes] == [0, 0], ranks.output
        expected = ranks.ends
    nodes, ranks = _train(job, "average")
    kill(ranks.wait_for(0, 10))
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert {ranks.processes(rank) for rank in (1, 2, 3)} == {1}
    assert ranks.ends == expected


def test_a_spare_process_takes_the_place_and_another_one_waits(job: Job, undisturbed: str) -> None:
    nodes, ranks = _train(job, STEP_SECONDS="0.2", DDPJOB_SPARES="1")
    wait_until(lambda: len(_spares()) == 2, lambda: ranks.output)
    before = _spares()
    first = ranks.wait_for(1, 5)
    kill(first)
    wait_until(lambda: len(_spares() - before) == 1, lambda: ranks.output)
    # The one that has taken the place is lost in turn, and then the one that had no time to wait.
    second = ranks.successor(1, first)
    kill(second)
    third = ranks.successor(1, second)
    kill(third)
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert second in before
    assert len({first, second, third, ranks.steps(1)[-1][0]}) == 4
    for other in (0, 2, 3):
        assert len({process for process, _ in ranks.steps(other)}) == 1
    assert ranks.ends == {undisturbed}
    # They end with the job.
    wait_until(lambda: not _spares(), lambda: ranks.output)


@pytest.mark.full
def test_ranks_are_lost_one_after_the_other_and_together(job: Job, undisturbed: str) -> None:
    nodes, ranks = _train(job, STEP_SECONDS="0.05", PET_MAX_RESTARTS="9")
    kill(ranks.wait_for(2, 5))
    # The process that has just taken its place, before it has met the others.
    wait_until(lambda: "process restart 1 of 9" in ranks.output, lambda: ranks.output)
    kill(_newest_worker(2))
    second = ranks.wait_for(2, 20)
    for process in (ranks.steps(1)[-1][0], second):
        kill(process)
    ranks.wait_for(1, 30)
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    for rank in (0, 3):
        steps = ranks.steps(rank)
        assert len({process for process, _ in steps}) == 1
        assert [step for _, step in steps] == list(range(1, LAST + 1))
    assert ranks.ends == {undisturbed}


@pytest.mark.full
def test_a_rank_is_lost_while_the_others_evaluate_or_save(job: Job) -> None:
    nodes, ranks = _train(job, "save", "killed-in-evaluation")
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    for rank in (0, 2, 3):
        assert [step for _, step in ranks.steps(rank)] == list(range(1, LAST + 1))
    (end,) = ranks.ends
    assert "accuracy" in end


def test_buffers_are_what_they_were_before_the_step_that_was_lost(job: Job) -> None:
    nodes, ranks = _train(job, "batchnorm", "killed-in-forward")
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert "process restart 1 of 3" in ranks.output
    # The step was begun twice, and counts once.
    (end,) = ranks.ends
    assert f"batches {LAST}" in end


@pytest.mark.full
def test_all_processes_start_again_once_the_budget_is_used_up(job: Job) -> None:
    nodes, ranks = _train(job, PET_MAX_RESTARTS="1")
    kill(ranks.wait_for(3, 5))
    again = ranks.wait_for(3, 15)
    kill(again)
    assert [node.end() for node in nodes] != [0, 0]
    assert nodes[1].report["failures"][0]["signal"] == "SIGKILL"
    assert nodes[1].report["processRestarts"] == 1


@pytest.mark.full
def test_a_program_whose_ranks_meet_before_the_training_starts_again_as_a_whole(job: Job) -> None:
    nodes, ranks = _train(job, "barrier-before")
    kill(ranks.wait_for(3, 5))
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert "all workers restart in their running pods, process restart 1 of 3" in nodes[1].output
    assert all(len({process for process, _ in ranks.steps(rank)}) == 2 for rank in range(4))


@pytest.mark.full
def test_an_exception_of_the_program_restarts_all_ranks(job: Job) -> None:
    nodes, ranks = _train(job, "raise-once")
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert "RuntimeError: connection to the data base" in ranks.output
    assert all(len({process for process, _ in ranks.steps(rank)}) == 2 for rank in range(4))


@pytest.mark.full
def test_a_request_to_stop_while_the_ranks_meet_is_obeyed(job: Job) -> None:
    nodes, ranks = _train(job, "save", STEP_SECONDS="0.1")
    kill(ranks.wait_for(3, 10))
    wait_until(lambda: "process restart 1 of 3" in ranks.output, lambda: ranks.output)
    for node in nodes:
        node.stop()
    assert [node.end() for node in nodes] == [143, 143], ranks.output
    assert list(job.folder.glob("checkpoints/step-*")) or list(job.folder.glob("checkpoints/**/step-*")), ranks.output


def _newest_worker(rank: int) -> int:
    """The process that runs the program of a rank."""
    found = list[int]()
    wait_until(lambda: bool(_processes(f"RANK={rank}", found)), lambda: f"no process of rank {rank}")
    return found[-1]


def _processes(variable: str, found: list[int]) -> list[int]:
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = file.read_bytes().split(b"\0")
            arguments = (file.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if variable.encode() in variables and b"worker" in arguments:
            found.append(int(file.parent.name))
    return found


def _spares() -> set[int]:
    """Processes that wait for a place."""
    return {
        int(file.parent.name)
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if _read(file).split(b"\0")[4:5] == [b"spare"]
    }


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
