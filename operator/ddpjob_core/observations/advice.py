"""The parts of messages that depend on where a job runs: where its output is found, and how it is resumed."""

from typing import Final, Protocol

from ddpjob_core.api.constants import LABEL_JOB


class Advice(Protocol):
    """What a person is advised to look at or to do in the place where a job runs."""

    def see_log(self, pod: str, container: str = "") -> str:
        """Where the log of a pod is found, or that of one of its containers other than the trainer."""
        ...

    def see_output(self, job: str) -> str:
        """Where the output of the whole job is found."""
        ...

    def check_rendezvous(self, pod: str) -> str:
        """What to check where other nodes cannot reach this pod, which is node 0."""
        ...

    def resume(self) -> str:
        """What a suspended job is waiting for."""
        ...


class ClusterAdvice:
    """For jobs of a cluster, by kubectl."""

    def see_log(self, pod: str, container: str = "") -> str:
        """See `Advice.see_log`."""
        return f"see kubectl logs {pod}" + (f" -c {container}" if container else "")

    def see_output(self, job: str) -> str:
        """See `Advice.see_output`."""
        return f"see kubectl logs -l {LABEL_JOB}={job}"

    def check_rendezvous(self, pod: str) -> str:
        """See `Advice.check_rendezvous`."""
        return f"check kubectl logs {pod}, the cluster's DNS and its network policies"

    def resume(self) -> str:
        """See `Advice.resume`."""
        return "no pods while spec.suspend is true; set it to false to resume"


IN_A_CLUSTER: Final = ClusterAdvice()
