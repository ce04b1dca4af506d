"""The pods of an elastic job whose ranks go on without a node, on loopback."""

import contextlib
import json
import os
import signal
from pathlib import Path

from launching import Job, Node, wait_until

from tests.ports import free_port

PROGRAM = Path(__file__).parent / "trainer" / "programs" / "surviving.py"


class Nodes:
    """The pods of a job with two ranks each, as the operator would have them."""

    def __init__(
        self, job: Job, nodes: int, *arguments: str, processes: int = 2, program: Path = PROGRAM, **options: str
    ) -> None:
        self.job, self.pods = job, dict[str, Node]()
        self._program = program
        self._arguments, self._processes = arguments, processes
        self._options = {"PET_MAX_RESTARTS": "3", "DDPJOB_REJOIN_SECONDS": "60", **options}
        self._membership: dict[str, object] = {"generation": 0, "nodes": nodes}
        for node in range(nodes):
            self.start(node)

    def start(self, node: int, member: int = 0) -> Node:
        """Start the pod of a node, the first one or that of a generation."""
        pod = f"node-{node}" + (f"-{member}" if member else "")
        own = {"DDPJOB_MEMBERSHIP_FILE": str(self._file(pod)), "DDPJOB_METRICS_PORT": str(free_port())}
        if member:
            own["DDPJOB_MEMBER"] = str(member)
        self._tell(pod)
        program = self.job.program(self._program.read_text())
        options = {**self._options, **own}
        nodes = self._membership["nodes"]
        assert isinstance(nodes, int)
        self.pods[pod] = self.job.start(
            node, nodes, program, *self._arguments, processes=self._processes, pod=pod, **options
        )
        return self.pods[pod]

    def start_spare(self, number: int) -> Node:
        """Start the pod of a spare node."""
        pod = f"spare-{number}"
        own = {"DDPJOB_MEMBERSHIP_FILE": str(self._file(pod)), "DDPJOB_METRICS_PORT": str(free_port())}
        self._tell(pod)
        program = self.job.program(self._program.read_text())
        options = {**self._options, **own, "DDPJOB_SPARE": str(number)}
        nodes = self._membership["nodes"]
        assert isinstance(nodes, int)
        self.pods[pod] = self.job.start(
            1,
            nodes,
            program,
            *self._arguments,
            processes=self._processes,
            pod=pod,
            without=("DDPJOB_NODE_RANK", "PET_LOCAL_ADDR"),
            **options,
        )
        return self.pods[pod]

    def announce(self, *pods: str, **membership: object) -> None:
        """Say to these pods what holds from now on, and to those that are started later."""
        self._membership |= membership
        for pod in pods:
            self._tell(pod)

    def lose(self, node: int, member: int = 0) -> None:
        """Kill a pod with all of its processes, none of which can say anything."""
        pod = self.pods.pop(f"node-{node}" + (f"-{member}" if member else ""))
        # First what would notice, and report, the end of the others.
        pod.kill()
        for rank in self.ranks(node):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.steps(rank)[-1][0], signal.SIGKILL)

    def ranks(self, node: int) -> range:
        return range(node * self._processes, (node + 1) * self._processes)

    def steps(self, rank: int) -> list[tuple[int, int]]:
        """Process and step, in their order."""
        file = self.job.folder / f"steps-{rank}"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def wait_for(self, rank: int, step: int) -> None:
        wait_until(lambda: any(each >= step for _, each in self.steps(rank)), lambda: self.output)

    def end(self) -> list[int]:
        return [pod.end() for pod in self.pods.values()]

    @property
    def output(self) -> str:
        return "".join(f"--- {name}\n{pod.output}" for name, pod in self.pods.items())

    @property
    def results(self) -> set[str]:
        """What the ranks say at their end, without their number."""
        return {line.split(" ", 3)[3] for line in self.output.splitlines() if line.startswith("DONE")}

    def _tell(self, pod: str) -> None:
        file = self._file(pod)
        new = file.with_name(f"{file.name}.new")
        new.write_text(json.dumps(self._membership))
        new.replace(file)

    def _file(self, pod: str) -> Path:
        return self.job.folder / f"membership-{pod}"
