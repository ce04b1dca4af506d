"""A spare node waits outside the training, with all loaded, and takes the place of a node that is lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers, wait_until
from nodes import Nodes

pytest.importorskip("torch")

LAST = 96
"""Steps of three epochs with four ranks."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def children(pid: int) -> list[int]:
    """The processes that a launcher's agent has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def is_ready(spare: Node) -> bool:
    """Whether a guard, an agent and a process for each of two ranks wait."""
    return "ready to take the place of a lost node" in spare.output and len(children(spare.pid)) >= 2 + 2


def test_a_spare_takes_the_place_in_processes_that_were_ready_and_no_step_is_lost(job: Job) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0.1")
    spare = nodes.start_spare(1)
    nodes.wait_for(3, 5)
    wait_until(lambda: is_ready(spare), lambda: nodes.output)
    waiting = children(spare.pid)
    assert not {process for process, _ in nodes.steps(2)} & set(waiting)
    nodes.lose(1)
    nodes.announce("node-0", "spare-1", generation=1, formed=0, members={"1": 1}, spares={"1": 1})
    assert nodes.end() == [0, 0], nodes.output
    for rank in nodes.ranks(0):
        assert [step for _, step in nodes.steps(rank)] == list(range(1, LAST + 1))
        assert len({process for process, _ in nodes.steps(rank)}) == 1
    for rank in nodes.ranks(1):
        # The last process of each rank is one that had waited.
        assert nodes.steps(rank)[-1][0] in waiting
    assert spare.report["generation"] == 1
    assert spare.report.get("processRestarts", 0) == 0


def test_a_spare_that_is_not_named_ends_at_once_when_it_is_asked_to(job: Job) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0", EPOCHS="1")
    spare = nodes.start_spare(1)
    del nodes.pods["spare-1"]
    wait_until(lambda: "ready to take the place of a lost node" in spare.output, lambda: nodes.output)
    spare.stop()
    assert spare.end(10) == 143, spare.output
    assert spare.report["stopped"]
    assert nodes.end() == [0, 0], nodes.output


@pytest.mark.full
def test_a_rank_of_a_spare_that_is_killed_afterwards_is_replaced_as_any_other(job: Job) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0.1")
    spare = nodes.start_spare(1)
    nodes.wait_for(3, 5)
    wait_until(lambda: is_ready(spare), lambda: nodes.output)
    nodes.lose(1)
    nodes.announce("node-0", "spare-1", generation=1, formed=0, members={"1": 1}, spares={"1": 1})
    first = nodes.steps(3)[-1][0]
    wait_until(lambda: nodes.steps(3)[-1][0] != first, lambda: nodes.output)
    killed = nodes.steps(3)[-1][0]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: nodes.steps(3)[-1][0] != killed, lambda: nodes.output)
    assert nodes.end() == [0, 0], nodes.output
    assert [step for _, step in nodes.steps(0)] == list(range(1, LAST + 1))
