"""A node that is lost comes back in another pod; the ranks of the others keep their processes, and all they have."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers, wait_until
from nodes import Nodes

pytest.importorskip("torch")

PROGRAMS = Path(__file__).parents[1] / "trainer" / "programs"
LAST = 96
"""Steps of three epochs with four ranks."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch, launchers(tmp_path_factory.mktemp("undisturbed"), patch) as job:
        nodes = Nodes(job, 2, STEP_SECONDS="0")
        assert nodes.end() == [0, 0], nodes.output
        (end,) = nodes.results
        return end


def _rejoin(nodes: Nodes, node: int, generation: int, *others: str) -> Node:
    """Another pod for a node, of which the others hear."""
    nodes.announce(*others, generation=generation, formed=0, members={str(node): generation})
    return nodes.start(node, generation)


def test_another_pod_takes_the_place_and_no_step_is_lost(job: Job, undisturbed: str) -> None:
    nodes = Nodes(job, 2)
    nodes.wait_for(3, 10)
    nodes.lose(1)
    new = _rejoin(nodes, 1, 1, "node-0")
    assert nodes.end() == [0, 0], nodes.output
    for rank in nodes.ranks(0):
        steps = nodes.steps(rank)
        assert len({process for process, _ in steps}) == 1
        assert [step for _, step in steps] == list(range(1, LAST + 1))
    # Bit by bit what came of the same training without the loss.
    assert nodes.results == {undisturbed}
    for pod in nodes.pods.values():
        # The loss of a node does not count as a restart of processes.
        assert pod.report.get("processRestarts", 0) == 0
        assert pod.report["generation"] == 1
    assert "ready to take the place of a pod that was lost" in new.output


@pytest.mark.full
def test_a_loop_of_ones_own_goes_on_without_a_lost_pod(job: Job, tmp_path_factory: pytest.TempPathFactory) -> None:
    own = PROGRAMS / "own_surviving.py"
    with pytest.MonkeyPatch.context() as patch, launchers(tmp_path_factory.mktemp("undisturbed"), patch) as other:
        whole = Nodes(other, 2, program=own, STEP_SECONDS="0")
        assert whole.end() == [0, 0], whole.output
    nodes = Nodes(job, 2, program=own)
    nodes.wait_for(3, 10)
    nodes.lose(1)
    _rejoin(nodes, 1, 1, "node-0")
    assert nodes.end() == [0, 0], nodes.output
    for rank in nodes.ranks(0):
        steps = nodes.steps(rank)
        assert len({process for process, _ in steps}) == 1
        assert [step for _, step in steps] == list(range(1, 33))
    assert nodes.results == whole.results


@pytest.mark.full
def test_a_loop_of_ones_own_goes_on_after_a_pod_that_was_asked_to_stop(job: Job) -> None:
    nodes = Nodes(job, 2, "save", program=PROGRAMS / "own_surviving.py", STEP_SECONDS="0.1")
    nodes.wait_for(3, 8)
    leaving = nodes.pods.pop("node-1")
    leaving.stop()
    assert leaving.end(30) == 143, leaving.output
    _rejoin(nodes, 1, 1, "node-0")
    assert nodes.end() == [0, 0], nodes.output
    for rank in nodes.ranks(0):
        assert len({process for process, _ in nodes.steps(rank)}) == 1
        assert [step for _, step in nodes.steps(rank)] == list(range(1, 33))


def test_a_pod_that_is_asked_to_stop_saves_with_the_others_which_go_on_without_it(job: Job, undisturbed: str) -> None:
    nodes = Nodes(job, 2, "save", STEP_SECONDS="0.05")
    nodes.wait_for(3, 10)
    leaving = nodes.pods.pop("node-1")
    leaving.stop()
    # Less than its grace period: it does not wait for ranks that stay.
    assert leaving.end(20) == 143, leaving.output
    assert leaving.report["message"] == "stopped by SIGTERM"
    saved = max(int(file.name.split("-")[1].partition(".")[0]) for file in job.folder.glob("checkpoints/**/step-*"))
    assert saved == nodes.steps(3)[-1][1]
    # The others know nothing of the next pod yet, and wait for it.
    time.sleep(1)
    assert nodes.steps(0)[-1][1] == saved
    _rejoin(nodes, 1, 1, "node-0")
    assert nodes.end() == [0, 0], nodes.output
    for rank in nodes.ranks(0):
        assert len({process for process, _ in nodes.steps(rank)}) == 1
        assert [step for _, step in nodes.steps(rank)] == list(range(1, LAST + 1))
    assert nodes.results == {undisturbed}


def test_a_job_that_stops_as_a_whole_waits_for_nobody(job: Job) -> None:
    nodes = Nodes(job, 2, "save", STEP_SECONDS="0.05")
    nodes.wait_for(3, 10)
    begun = time.monotonic()
    nodes.pods["node-1"].stop()
    wait_until(lambda: "SIGTERM: stopping the workers" in nodes.pods["node-1"].output, lambda: nodes.output)
    nodes.pods["node-0"].stop()
    assert nodes.end() == [143, 143], nodes.output
    # The ranks that are not asked themselves would wait for a minute.
    assert time.monotonic() - begun < 30


@pytest.mark.full
def test_a_lost_pod_that_is_back_does_not_meet_the_others(job: Job, undisturbed: str) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0.1", EPOCHS="3")
    nodes.wait_for(3, 10)
    frozen = nodes.pods.pop("node-1")
    processes = [frozen.pid, *(nodes.steps(rank)[-1][0] for rank in nodes.ranks(1))]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    before = nodes.steps(0)[-1][1]
    new = _rejoin(nodes, 1, 1, "node-0")
    nodes.wait_for(0, before + 5)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    assert nodes.end() == [0, 0], nodes.output
    assert nodes.results == {undisturbed}
    for rank in nodes.ranks(0):
        assert len({process for process, _ in nodes.steps(rank)}) == 1
    assert frozen.end() != 0
    assert "another pod has taken the place of rank" in frozen.output
    assert "process restart" not in nodes.output
    assert new.report["generation"] == 1


@pytest.mark.full
def test_ranks_are_replaced_in_pods_of_either_kind_after_that(job: Job, undisturbed: str) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0.05")
    nodes.wait_for(3, 10)
    nodes.lose(1)
    _rejoin(nodes, 1, 1, "node-0")
    for rank in (3, 0):
        before = len(nodes.steps(rank))
        wait_until(lambda rank=rank, before=before: len(nodes.steps(rank)) > before + 5, lambda: nodes.output)
        os.kill(nodes.steps(rank)[-1][0], signal.SIGKILL)
        killed = nodes.steps(rank)[-1][0]
        wait_until(lambda rank=rank, killed=killed: nodes.steps(rank)[-1][0] != killed, lambda: nodes.output)
    assert nodes.end() == [0, 0], nodes.output
    assert nodes.results == {undisturbed}
    assert max(pod.report.get("processRestarts", 0) for pod in nodes.pods.values()) == 2


@pytest.mark.full
def test_a_node_is_lost_twice(job: Job, undisturbed: str) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0.05")
    nodes.wait_for(3, 10)
    nodes.lose(1)
    _rejoin(nodes, 1, 1, "node-0")
    first = nodes.steps(3)[-1][0]
    wait_until(lambda: nodes.steps(3)[-1][0] != first, lambda: nodes.output)
    nodes.lose(1, 1)
    _rejoin(nodes, 1, 2, "node-0")
    assert nodes.end() == [0, 0], nodes.output
    assert nodes.results == {undisturbed}
    assert len({process for process, _ in nodes.steps(0)}) == 1


@pytest.mark.full
def test_a_pod_that_is_lost_before_it_has_met_the_others_has_another_one_too(job: Job, undisturbed: str) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0.05")
    nodes.wait_for(3, 10)
    nodes.lose(1)
    new = _rejoin(nodes, 1, 1, "node-0")
    wait_until(lambda: "processes 2, rendezvous" in new.output, lambda: nodes.output)
    nodes.lose(1, 1)
    _rejoin(nodes, 1, 2, "node-0")
    assert nodes.end() == [0, 0], nodes.output
    assert nodes.results == {undisturbed}


def test_without_room_for_another_pod_the_nodes_that_are_left_go_on_in_theirs(job: Job) -> None:
    nodes = Nodes(job, 2, "save", STEP_SECONDS="0.05")
    first = nodes.pods["node-0"]
    wait_until(lambda: any(job.folder.glob("checkpoints/**/step-*")), lambda: nodes.output)
    nodes.wait_for(3, 10)
    nodes.lose(1)
    nodes.announce("node-0", generation=1, formed=0, members={"1": 1})
    wait_until(lambda: "go on in their processes" in first.output, lambda: nodes.output)
    nodes.announce("node-0", generation=2, formed=2, nodes=1)
    assert first.end() == 0, nodes.output
    assert "which wait for a node that was lost" in first.output
    assert "did not exit within" not in first.output
    assert (nodes.steps(0)[-1][1], first.report["generation"]) == (LAST, 2)


def test_a_program_whose_ranks_cannot_go_on_ends_at_once(job: Job) -> None:
    nodes = Nodes(job, 2, "barrier-before")
    nodes.wait_for(3, 5)
    nodes.lose(1)
    new = _rejoin(nodes, 1, 1, "node-0")
    first = nodes.pods["node-0"]
    assert first.end() == 1, nodes.output
    assert first.report["failures"][0]["message"] == (
        "connection lost: the ranks cannot go on without node 1: "
        "not all ranks can go on with the process of another one"
    )
    # It has heard of the loss, and does not take it for a change of size that it has missed.
    assert first.report["generation"] == 1
    assert not new.reported


@pytest.mark.full
def test_an_exception_after_that_ends_the_nodes_instead_of_their_rounds(job: Job) -> None:
    nodes = Nodes(job, 2, "raise-later", STEP_SECONDS="0.05")
    nodes.wait_for(3, 10)
    nodes.lose(1)
    _rejoin(nodes, 1, 1, "node-0")
    wait_until(lambda: len({process for process, _ in nodes.steps(2)}) == 2, lambda: nodes.output)
    (job.folder / "raise-later").touch()
    assert nodes.pods["node-1-1"].end() == 1
    assert nodes.pods["node-1-1"].report["failures"][0]["message"].startswith("RuntimeError: now")
    assert "all workers restart" not in nodes.output


def test_a_node_that_is_lost_after_the_training_does_not_keep_node_0_waiting(job: Job) -> None:
    nodes = Nodes(job, 2, STEP_SECONDS="0", EPOCHS="1", LINGERS="1")
    first = nodes.pods["node-0"]
    # Its ranks are done; its agent waits for that of the other node, as long as five minutes.
    wait_until(lambda: first.reported, lambda: nodes.output)
    nodes.lose(1)
    nodes.announce("node-0", generation=1, formed=0, members={"1": 1})
    assert first.end(30) == 0, nodes.output
    # The generation says that this was no end of the job.
    assert first.report["generation"] == 0
