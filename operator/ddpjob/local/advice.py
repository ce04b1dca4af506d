"""What the messages about a job advise where it runs on this machine."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalAdvice:
    """For a job that runs without a cluster. See `ddpjob_core.observations.advice.Advice`.

    Attributes:
        folder: the job's, with a folder for each pod.
    """

    folder: Path

    def see_log(self, pod: str, container: str = "") -> str:  # noqa: ARG002 a pod is one process here
        """The pod's log file."""
        return f"see {self.folder / pod / 'log'}"

    def see_output(self, job: str) -> str:  # noqa: ARG002 there is one job in the terminal
        """The terminal."""
        return "see its output"

    def check_rendezvous(self, pod: str) -> str:
        """The log of node 0: there is no network between the nodes."""
        return self.see_log(pod)

    def resume(self) -> str:
        """The command that started it."""
        return "no processes are running; run the same command again to resume"
