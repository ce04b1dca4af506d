"""Launchers of a job that changes its size: nodes that stay start their workers again in place, at the new size."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers, wait_until

pytest.importorskip("torch")

# Says who it is once all ranks have met, and trains until it is asked to stop or a file says that it is done.
TRAIN = """
import os, pathlib, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
pathlib.Path(f"met-{rank}-of-{size}-{os.getpid()}").touch()
while not os.path.exists("done"): time.sleep(0.01)
"""


class ElasticJob:
    """A job whose members the test names."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.nodes: dict[int, Node] = {}
        self._generation = 0

    def announce(self, nodes: int, *, only: int | None = None, generation: int | None = None) -> None:
        """Tell all nodes that are to know it, or one, which membership holds from now on."""
        self._generation = self._generation + 1 if generation is None else generation
        for ordinal in range(4) if only is None else (only,):
            self._file(ordinal).write_text(json.dumps({"generation": self._generation, "nodes": nodes}))

    def start(self, ordinal: int, program: str = TRAIN, **options: str) -> Node:
        """Start a node."""
        path = self.job.program(program)
        file = str(self._file(ordinal))
        self.nodes[ordinal] = self.job.start(ordinal, 4, path, processes=1, DDPJOB_MEMBERSHIP_FILE=file, **options)
        return self.nodes[ordinal]

    def trains(self, nodes: int) -> None:
        """Wait until all ranks of that many nodes have met."""

        def met() -> bool:
            return all(any(self.job.folder.glob(f"met-{rank}-of-{nodes}-*")) for rank in range(nodes))

        wait_until(met, lambda: "\n".join(f"{ordinal}: {node.output}" for ordinal, node in self.nodes.items()))

    def finish(self) -> None:
        """Let the program end."""
        (self.job.folder / "done").touch()

    def _file(self, ordinal: int) -> Path:
        return self.job.folder / f"membership-{ordinal}"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ElasticJob]:
    with launchers(tmp_path, monkeypatch) as job:
        yield ElasticJob(job)


def test_a_job_grows_and_shrinks_while_the_nodes_that_stay_keep_their_launchers(job: ElasticJob) -> None:
    job.announce(2, generation=0)
    staying, leaving = job.start(0), job.start(1)
    job.trains(2)
    joining = job.start(2)
    wait_until(lambda: "ready to join the training" in joining.output, lambda: joining.output)
    job.announce(3)
    job.trains(3)
    assert "the training goes on with 3 nodes: stopping the workers" in staying.output
    job.announce(1)
    job.trains(1)
    for node in (leaving, joining):
        # It waits to join again until it is asked to stop.
        wait_until(lambda node=node: "1 node, and without this one" in node.output, lambda node=node: node.output)
        node.stop()
        assert node.end() == 143, node.output
        assert node.report["stoppedBy"] == "SIGTERM"
    job.finish()
    assert staying.end() == 0, staying.output
    assert staying.report == {"exitCode": 0, "generation": 2}


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_node_that_hears_of_a_new_size_first_waits_for_the_others(job: ElasticJob, ahead: int) -> None:
    job.announce(2, generation=0)
    job.start(0)
    job.start(1)
    job.start(2)
    job.trains(2)
    job.announce(3, only=ahead, generation=1)
    wait_until(lambda: "goes on with 3 nodes" in job.nodes[ahead].output, lambda: job.nodes[ahead].output)
    # It starts again, and finds the others where they were.
    wait_until(lambda: job.nodes[ahead].output.count("attempt 0, node") == 2, lambda: job.nodes[ahead].output)
    job.announce(3, generation=1)
    job.trains(3)
    job.finish()
    for node in job.nodes.values():
        assert node.end() == 0, node.output


def test_a_worker_that_ends_well_because_it_was_asked_to_stop_has_not_finished_the_job(job: ElasticJob) -> None:
    polite = TRAIN.replace("import torch", "import signal, torch", 1)
    polite = polite.replace("rank, size", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nrank, size", 1)
    job.announce(2, generation=0)
    first, second = job.start(0, polite), job.start(1, polite)
    job.trains(2)
    job.announce(1)
    job.trains(1)
    assert not first.reported
    assert not second.reported
    job.finish()
    assert first.end() == 0


def test_a_stop_ends_a_node_that_waits_to_join_and_one_that_follows_a_new_size(job: ElasticJob) -> None:
    job.announce(1, generation=0)
    first, waiting = job.start(0), job.start(1)
    job.trains(1)
    wait_until(lambda: "ready to join" in waiting.output, lambda: waiting.output)
    waiting.stop()
    assert waiting.end() == 143
    # It was in no membership.
    assert waiting.report.keys() == {"exitCode", "stopped", "stoppedBy", "message"}
    job.announce(2)
    wait_until(lambda: "goes on with 2 nodes" in first.output, lambda: first.output)
    first.stop()
    assert first.end() == 143
    assert first.report == {"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM", "message": "stopped by SIGTERM"}


def test_a_failure_that_no_change_of_size_explains_is_reported(job: ElasticJob) -> None:
    job.announce(2, generation=0)
    failing = TRAIN + "if rank == 1: raise ValueError('batch 7')\n"
    nodes = job.start(0, failing), job.start(1, failing)
    job.finish()
    assert nodes[1].end() == 1
    assert nodes[1].report["generation"] == 0
    assert nodes[1].report["failures"][0]["message"].startswith("ValueError: batch 7")


def test_ranks_that_end_well_because_others_were_asked_to_stop_have_not_finished(job: ElasticJob) -> None:
    # They agree on a stop, save, and end with 0: one node has heard of the change, the other one has not.
    agreeing = TRAIN.replace('while not os.path.exists("done")', 'while not os.path.exists("done-%d" % size)')
    job.announce(2, generation=0)
    first = job.start(0, agreeing)
    job.start(1, agreeing)
    job.trains(2)
    (job.job.folder / "done-2").touch()
    job.announce(1)
    job.trains(1)
    assert not first.reported
    (job.job.folder / "done-1").touch()
    assert first.end() == 0
    assert first.report == {"exitCode": 0, "generation": 1}


def test_what_workers_could_not_save_and_what_they_leave_running_is_said_and_ended(job: ElasticJob) -> None:
    careless = TRAIN.replace(
        "rank, size",
        "import signal, subprocess\nhelper = subprocess.Popen(['sleep', '600'])\n"
        "pathlib.Path(f'helper-{helper.pid}').touch()\n"
        "def save(*_): raise OSError('no space left on device')\nsignal.signal(signal.SIGTERM, save)\nrank, size",
        1,
    )
    job.announce(1, generation=0)
    node = job.start(0, careless)
    job.trains(1)
    job.announce(1)
    wait_until(lambda: len(list(job.job.folder.glob("helper-*"))) == 2, lambda: node.output)
    assert "what was not saved is lost: rank 0: " in node.output
    assert "no space left on device" in node.output
    helpers = [int(file.name.partition("-")[2]) for file in job.job.folder.glob("helper-*")]
    alive = [
        pid for pid in helpers if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(alive) == 1
