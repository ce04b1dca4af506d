"""What the operator, or `ddpjob run --local`, sets in the environment: read once, without defaults of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import CannotStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_NO_PLACE = -1


@dataclass(frozen=True)
class Settings:
    """What every launcher is given: DDPJOB_<NAME>.

    Attributes:
        job: its name.
        namespace: of the job.
        attempt: number of the set of pods.
        node: the rank of this node; below 0 that of a spare node which has no place yet.
        nodes: how many nodes the job has.
        launcher: spec.launcher.
        module: the module of ours that runs it.
        program_kind: script or module.
        program: path or name of the program.
        metrics_port: of local rank 0.
        grace_period: how long the pod may take to stop, in seconds.
        rendezvous_host: name of node 0.
        rendezvous_port: where node 0's store answers, or under mpirun the sshd of each other node.
        rendezvous_timeout: how long nodes wait for each other, in seconds.
        host_network: whether the pod uses its node's network.
        membership_file: what says which nodes of an elastic job train together; "" for other jobs.
        member: generation of the membership that has brought this pod into an attempt that had begun; else 0.
        rejoin: how long the others wait for a pod in the place of a lost one, in seconds; 0: all start again.
        spares: processes that are kept ready to take the place of a worker that was killed.
        spare: number of the spare node that this pod was created as; 0 for others.
        local: whether this is `ddpjob run --local`, where there is no cluster to look at.
    """

    job: str
    namespace: str
    attempt: int
    node: int
    nodes: int
    launcher: str
    module: str
    program_kind: str
    program: str
    metrics_port: int
    grace_period: float
    rendezvous_host: str
    rendezvous_port: int
    rendezvous_timeout: float
    host_network: bool
    membership_file: str
    member: int
    rejoin: float
    spares: int
    spare: int
    local: bool

    def pods_of_the_job(self, selector: str = "") -> str:
        """The command that shows the job's pods."""
        return f"kubectl -n {self.namespace} get pods -l ddpjob.dev/job={self.job}{selector}"

    def this_node(self) -> str:
        """Which node this is, for the log."""
        node = f"spare node {self.spare}" if self.node == _NO_PLACE else f"node {self.node} of {self.nodes}"
        return f"job {self.job}, attempt {self.attempt}, {node}"


@dataclass(frozen=True)
class Master:
    """What a launcher other than torchrun gets in addition.

    Attributes:
        address: name of node 0.
        port: where rank 0's store answers.
        processes: how many processes each node runs.
    """

    address: str
    port: int
    processes: int


def read_settings(environment: Mapping[str, str]) -> Settings:
    """The settings in an environment; a CannotStart where one is missing or malformed."""
    spare = _whole(environment, "DDPJOB_SPARE") if "DDPJOB_SPARE" in environment else 0
    return Settings(
        job=_text(environment, "DDPJOB_NAME"),
        namespace=_text(environment, "DDPJOB_NAMESPACE"),
        attempt=_whole(environment, "DDPJOB_ATTEMPT"),
        node=_whole(environment, "DDPJOB_NODE_RANK") if spare == 0 or "DDPJOB_NODE_RANK" in environment else _NO_PLACE,
        nodes=_whole(environment, "DDPJOB_NODES"),
        launcher=_text(environment, "DDPJOB_LAUNCHER"),
        module=_text(environment, "DDPJOB_LAUNCHER_MODULE"),
        program_kind=_text(environment, "DDPJOB_PROGRAM_KIND"),
        program=_text(environment, "DDPJOB_PROGRAM"),
        metrics_port=_whole(environment, "DDPJOB_METRICS_PORT"),
        grace_period=_seconds(environment, "DDPJOB_GRACE_PERIOD_SECONDS"),
        rendezvous_host=_text(environment, "DDPJOB_RENDEZVOUS_HOST"),
        rendezvous_port=_whole(environment, "DDPJOB_RENDEZVOUS_PORT"),
        rendezvous_timeout=_seconds(environment, "DDPJOB_RENDEZVOUS_TIMEOUT"),
        host_network="DDPJOB_HOST_NETWORK" in environment,
        membership_file=environment.get("DDPJOB_MEMBERSHIP_FILE", ""),
        member=_whole(environment, "DDPJOB_MEMBER") if "DDPJOB_MEMBER" in environment else 0,
        rejoin=_seconds(environment, "DDPJOB_REJOIN_SECONDS") if "DDPJOB_REJOIN_SECONDS" in environment else 0,
        spares=_whole(environment, "DDPJOB_SPARES") if "DDPJOB_SPARES" in environment else 0,
        spare=spare,
        local="DDPJOB_LOCAL" in environment,
    )


def read_master(environment: Mapping[str, str]) -> Master:
    """What else a launcher other than torchrun is given; a CannotStart where it is missing or malformed."""
    return Master(
        address=_text(environment, "MASTER_ADDR"),
        port=_whole(environment, "MASTER_PORT"),
        processes=_whole(environment, "DDPJOB_PROCS_PER_NODE"),
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    try:
        return environment[name]
    except KeyError:
        raise CannotStart(f"the environment variable {name}, which the operator sets, is missing") from None


def _whole(environment: Mapping[str, str], name: str) -> int:
    return int(_number(environment, name, int, "must be a whole number"))


def _seconds(environment: Mapping[str, str], name: str) -> float:
    return _number(environment, name, float, "must be a number of seconds")


def _number(environment: Mapping[str, str], name: str, read: Callable[[str], float], must: str) -> float:
    text = _text(environment, name)
    try:
        return read(text)
    except ValueError:
        raise CannotStart(f"the environment variable {name} {must}, not {text!r}") from None
