"""What the ranks of programs that survive a loss have written down, and what kills them."""

import os
import signal

from launching import Job, Node, wait_until

from tests.ports import free_port


class Ranks:
    """What the ranks of a program have written down."""

    def __init__(self, job: Job, *nodes: Node) -> None:
        self._folder, self._nodes = job.folder, nodes

    def steps(self, rank: int) -> list[tuple[int, int]]:
        """Process and step, in their order."""
        file = self._folder / f"steps-{rank}"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def wait_for(self, rank: int, step: int) -> int:
        """Wait for a step of a rank, and return its process."""
        wait_until(lambda: any(each >= step for _, each in self.steps(rank)), lambda: self.output)
        return self.steps(rank)[-1][0]

    def successor(self, rank: int, process: int) -> int:
        """Wait for a step of another process of a rank than the one that was killed, and return it."""
        wait_until(lambda: self.steps(rank)[-1][0] != process, lambda: self.output)
        return self.steps(rank)[-1][0]

    @property
    def output(self) -> str:
        return "".join(node.output for node in self._nodes)

    @property
    def ends(self) -> set[str]:
        """What the ranks say at their end, without their number."""
        found = [line.split(" ", 3)[3] for line in self.output.splitlines() if line.startswith("DONE")]
        assert len(found) == 4, self.output
        return set(found)

    def processes(self, rank: int) -> int:
        """How many processes have made steps of a rank."""
        return len({process for process, _ in self.steps(rank)})


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def train(job: Job, program: str, *arguments: str, **options: str) -> tuple[tuple[Node, Node], Ranks]:
    """Start a program on two nodes with two ranks each."""
    own = {"PET_MAX_RESTARTS": "3", "DDPJOB_METRICS_PORT": str(free_port()), **options}
    nodes = job.both(job.program(program), *arguments, **own)
    return nodes, Ranks(job, *nodes)
