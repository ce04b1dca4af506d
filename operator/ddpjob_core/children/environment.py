"""The environment of a training pod: the launcher's own variables and ours (DDPJOB_*).

Every torchrun option reads PET_<NAME>, so a container's command is never rewritten. PET_NODE_RANK and PET_MASTER_* are
set for the static rendezvous only: c10d ignores them and logs so on every node. A program that plain python or mpirun
starts gets no PET_*, or it would look like one started by torchrun.

What is the same in all pods stands in the launcher's ConfigMap: the API server keeps track of every variable of every
pod, and with all 25 of them a pod costs it a quarter more.
"""

from typing import Final

from ddpjob_core.api.launchers import RendezvousBackend, Variables
from ddpjob_core.api.names import pod_name, service_name
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.checkpoint import checkpoint_environment
from ddpjob_core.children.host_network import host_network_environment
from ddpjob_core.children.processes import resolve_backend, resolve_procs_per_node
from ddpjob_core.children.template import resources_of
from ddpjob_core.observations.observed import JobRecord

MEMBERSHIP_FOLDER: Final = "/ddpjob-membership"
MEMBERSHIP_FILE: Final = "membership"

OF_A_NODE: Final = ("DDPJOB_NODE_RANK", "DDPJOB_MEMBER", "PET_LOCAL_ADDR")
"""Variables that a spare node learns with its place."""

PROCESS_RESTARTS: Final = 3
"""Default of spec.restart.maxProcessRestarts."""


def node_address(job: str, attempt: int, ordinal: int, nodes: int, member: int = 0) -> str:
    """Name under which the other pods of the job reach this one, relative to the namespace.

    Args:
        job: whose pod it is.
        attempt: number of the set of pods.
        ordinal: which of them.
        nodes: the most that the attempt can have.
        member: generation of the membership that has brought the pod, 0 for the node's first one.
    """
    return f"{pod_name(job, attempt, ordinal, nodes, member)}.{service_name(job)}"


def rendezvous_id(uid: str, attempt: int) -> str:
    """A new id for each attempt: an agent left over from an earlier one can never join."""
    return f"{uid}-{attempt}"


def shared_environment(job: JobRecord, spec: DDPJobSpec) -> dict[str, str]:
    """The variables that are the same in all pods of the job, in every attempt with this spec.

    None of them comes from a field that may change while pods run.

    Args:
        job: whose pods they are.
        spec: the job's spec; its template has no errors (`template_errors`).
    """
    resources = resources_of(spec)
    processes = resolve_procs_per_node(spec.procs_per_node, resources)
    environment = {
        "DDPJOB_NAME": job.name,
        "DDPJOB_NAMESPACE": job.namespace,
        "DDPJOB_UID": job.uid,
        "DDPJOB_BACKEND": resolve_backend(spec.backend, resources).value,
        "DDPJOB_METRICS_PORT": str(spec.metrics.port),
        "DDPJOB_GRACE_PERIOD_SECONDS": str(spec.grace_period_seconds),
        "DDPJOB_RENDEZVOUS_PORT": str(spec.rendezvous.port),
        "DDPJOB_RENDEZVOUS_TIMEOUT": str(spec.rendezvous.timeout_seconds),
        **_launchers_shared(spec, processes),
        **host_network_environment(spec.template),
    }
    if spec.restart.spares and spec.rendezvous.backend in spec.launcher.traits.restarts_in_place:
        environment["DDPJOB_SPARES"] = str(spec.restart.spares)
    if spec.elastic is not None:
        environment["DDPJOB_MEMBERSHIP_FILE"] = f"{MEMBERSHIP_FOLDER}/{MEMBERSHIP_FILE}"
        if spec.elastic.rejoin_seconds:
            environment["DDPJOB_REJOIN_SECONDS"] = str(spec.elastic.rejoin_seconds)
    if spec.checkpoint is not None:
        environment.update(checkpoint_environment(job, spec.checkpoint))
    trainer = spec.trainer
    if trainer.command is None:
        environment["DDPJOB_LAUNCHER"] = spec.launcher.value
        environment["DDPJOB_LAUNCHER_MODULE"] = spec.launcher.traits.module
        environment["DDPJOB_PROGRAM_KIND"] = "script" if trainer.script is not None else "module"
        environment["DDPJOB_PROGRAM"] = trainer.script or trainer.module or ""
    return environment


def pod_environment(job: JobRecord, spec: DDPJobSpec, attempt: int, ordinal: int, member: int = 0) -> dict[str, str]:
    """The variables of one pod that the others, or those of another attempt, have with another value.

    In an elastic job the launcher replaces the number of nodes and the rendezvous id by those of the membership.

    Args:
        job: whose pod it is.
        spec: the job's spec.
        attempt: number of the set of pods.
        ordinal: the node's rank.
        member: generation of the membership that has brought the pod, 0 for the node's first one.
    """
    first = node_address(job.name, attempt, 0, spec.most_nodes)
    return {
        "DDPJOB_ATTEMPT": str(attempt),
        "DDPJOB_NODE_RANK": str(ordinal),
        "DDPJOB_NODES": str(spec.nodes),
        "DDPJOB_PROGRESS_DEADLINE_SECONDS": str(spec.progress_deadline.seconds),
        "DDPJOB_RENDEZVOUS_HOST": first,
        **({"DDPJOB_MEMBER": str(member)} if member else {}),
        **_launchers_own(job, spec, attempt, ordinal, first=first, member=member),
    }


def spare_environment(job: JobRecord, spec: DDPJobSpec, attempt: int, number: int) -> dict[str, str]:
    """The same for the pod of a spare node, without what is a node's alone: its launcher sets that when it is named.

    Args:
        job: whose pod it is.
        spec: the job's spec.
        attempt: number of the set of pods.
        number: of the spare.
    """
    # Node 0 alone hosts the store.
    of_any_other = pod_environment(job, spec, attempt, 1)
    own = {name: value for name, value in of_any_other.items() if name not in OF_A_NODE}
    return {**own, "DDPJOB_SPARE": str(number)}


def _launchers_shared(spec: DDPJobSpec, processes: int) -> dict[str, str]:
    port = str(spec.rendezvous.port)
    if spec.launcher.traits.variables is not Variables.TORCHRUN:
        # As `mpirun -x MASTER_ADDR=... -x MASTER_PORT=...` hands them to each rank.
        return {"DDPJOB_PROCS_PER_NODE": str(processes), "MASTER_PORT": port}
    static = {"PET_MASTER_PORT": port} if spec.rendezvous.backend is RendezvousBackend.STATIC else {}
    return {"PET_NPROC_PER_NODE": str(processes), "PET_RDZV_BACKEND": spec.rendezvous.backend.value, **static}


def _launchers_own(
    job: JobRecord, spec: DDPJobSpec, attempt: int, ordinal: int, *, first: str, member: int
) -> dict[str, str]:
    match spec.launcher.traits.variables:
        case Variables.TORCHRUN:
            return _torchrun(job, spec, attempt, ordinal, first=first, member=member)
        case Variables.MASTER:
            return {"MASTER_ADDR": first}
        case Variables.RANK:
            # Programs that spawn their processes themselves expect RANK and WORLD_SIZE to count what was started.
            return {"RANK": str(ordinal), "WORLD_SIZE": str(spec.nodes), "MASTER_ADDR": first}


def _torchrun(
    job: JobRecord, spec: DDPJobSpec, attempt: int, ordinal: int, *, first: str, member: int
) -> dict[str, str]:
    environment = {
        "PET_NNODES": str(spec.nodes),
        "PET_MAX_RESTARTS": str(process_restarts(spec)),
        "PET_RDZV_ID": rendezvous_id(job.uid, attempt),
        "PET_RDZV_CONF": _rendezvous_conf(spec, ordinal),
        # Decides the order of the ranks and becomes MASTER_ADDR; by default it is whatever the host name resolves to.
        "PET_LOCAL_ADDR": node_address(job.name, attempt, ordinal, spec.most_nodes, member),
    }
    if spec.rendezvous.backend is RendezvousBackend.STATIC:
        environment["PET_NODE_RANK"] = str(ordinal)
        environment["PET_MASTER_ADDR"] = first
    else:
        # With the static rendezvous it would override PET_MASTER_*.
        environment["PET_RDZV_ENDPOINT"] = f"{first}:{spec.rendezvous.port}"
    return environment


def process_restarts(spec: DDPJobSpec) -> int:
    """The effective spec.restart.maxProcessRestarts: how often workers restart inside running pods."""
    if spec.rendezvous.backend not in spec.launcher.traits.restarts_in_place:
        return 0
    asked = spec.restart.max_process_restarts
    return PROCESS_RESTARTS if asked is None else asked


def _rendezvous_conf(spec: DDPJobSpec, ordinal: int) -> str:
    rendezvous = spec.rendezvous
    # Nodes that change their size with others may have to wait until those have stopped.
    stopping = spec.grace_period_seconds if spec.elastic is not None else 0
    timeout = str(rendezvous.timeout_seconds + stopping)
    if rendezvous.backend is RendezvousBackend.STATIC:
        conf = {"timeout": timeout}
    else:
        conf = {
            "join_timeout": timeout,
            # A store operation must not give up while other nodes may still join.
            "read_timeout": timeout,
            # Otherwise torchrun guesses the host of the store from host names, and two nodes may both claim it.
            "is_host": "1" if ordinal == 0 else "0",
            # How long torchrun waits for further nodes once the minimum has joined: with a fixed number there are none.
            "last_call_timeout": "1",
        }
    conf.update(rendezvous.conf)
    return ",".join(f"{key}={value}" for key, value in conf.items())
