"""The environment of a training pod: the launcher's own variables and ours (DDPJOB_*).

Every torchrun option reads PET_<NAME>, so a container's command is never rewritten. PET_NODE_RANK and PET_MASTER_* are
given to the static rendezvous alone: c10d ignores them and says so on every node. A program that plain python or mpirun
starts is given no PET_*: it would be taken for one of torchrun's.
"""

from typing import Final

from ddpjob_core.api.launchers import RendezvousBackend, Variables
from ddpjob_core.api.names import pod_name, service_name
from ddpjob_core.api.spec import Backend, DDPJobSpec, Rendezvous
from ddpjob_core.children.checkpoint import checkpoint_environment
from ddpjob_core.observations.observed import JobRecord

PROCESS_RESTARTS: Final = 3
"""spec.restart.maxProcessRestarts where it is left out."""


def node_address(job: str, attempt: int, ordinal: int, nodes: int) -> str:
    """Name under which the other pods of the job reach this one, relative to the namespace."""
    return f"{pod_name(job, attempt, ordinal, nodes)}.{service_name(job)}"


def rendezvous_id(uid: str, attempt: int) -> str:
    """A fresh id for each attempt: an agent that was left behind can never join the next one."""
    return f"{uid}-{attempt}"


def pod_environment(
    job: JobRecord, spec: DDPJobSpec, attempt: int, ordinal: int, *, processes: int, backend: Backend
) -> dict[str, str]:
    """Name to value of every variable that the operator sets in the trainer container.

    Args:
        job: whose pod it is.
        spec: the job's spec.
        attempt: number of the set of pods.
        ordinal: which node of the training it is.
        processes: training processes on each node.
        backend: of the process group.
    """
    first = node_address(job.name, attempt, 0, spec.nodes)
    environment = {
        "DDPJOB_NAME": job.name,
        "DDPJOB_NAMESPACE": job.namespace,
        "DDPJOB_UID": job.uid,
        "DDPJOB_ATTEMPT": str(attempt),
        "DDPJOB_NODE_RANK": str(ordinal),
        "DDPJOB_NODES": str(spec.nodes),
        "DDPJOB_BACKEND": backend.value,
        "DDPJOB_METRICS_PORT": str(spec.metrics.port),
        "DDPJOB_GRACE_PERIOD_SECONDS": str(spec.grace_period_seconds),
        "DDPJOB_PROGRESS_DEADLINE_SECONDS": str(spec.progress_deadline.seconds),
        "DDPJOB_RENDEZVOUS_HOST": first,
        "DDPJOB_RENDEZVOUS_PORT": str(spec.rendezvous.port),
        "DDPJOB_RENDEZVOUS_TIMEOUT": str(spec.rendezvous.timeout_seconds),
        **_launchers_own(job, spec, attempt, ordinal, processes=processes, first=first),
    }
    if spec.checkpoint is not None:
        environment.update(checkpoint_environment(job, spec.checkpoint))
    trainer = spec.trainer
    if trainer.command is None:
        environment["DDPJOB_LAUNCHER"] = spec.launcher.value
        environment["DDPJOB_LAUNCHER_MODULE"] = spec.launcher.traits.module
        environment["DDPJOB_PROGRAM_KIND"] = "script" if trainer.script is not None else "module"
        environment["DDPJOB_PROGRAM"] = trainer.script or trainer.module or ""
    return environment


def _launchers_own(
    job: JobRecord, spec: DDPJobSpec, attempt: int, ordinal: int, *, processes: int, first: str
) -> dict[str, str]:
    # As `mpirun -x MASTER_ADDR=... -x MASTER_PORT=...` hands them to each rank.
    master = {
        "DDPJOB_PROCS_PER_NODE": str(processes),
        "MASTER_ADDR": first,
        "MASTER_PORT": str(spec.rendezvous.port),
    }
    match spec.launcher.traits.variables:
        case Variables.TORCHRUN:
            return _torchrun(job, spec, attempt, ordinal, processes=processes, first=first)
        case Variables.MASTER:
            return master
        case Variables.RANK:
            # Programs that spawn their processes themselves expect RANK and WORLD_SIZE to count what was started.
            return {"RANK": str(ordinal), "WORLD_SIZE": str(spec.nodes), **master}


def _torchrun(
    job: JobRecord, spec: DDPJobSpec, attempt: int, ordinal: int, *, processes: int, first: str
) -> dict[str, str]:
    environment = {
        "PET_NNODES": str(spec.nodes),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_MAX_RESTARTS": str(process_restarts(spec)),
        "PET_RDZV_ID": rendezvous_id(job.uid, attempt),
        "PET_RDZV_BACKEND": spec.rendezvous.backend.value,
        "PET_RDZV_CONF": _rendezvous_conf(spec.rendezvous, ordinal),
        # Decides the order of the ranks and becomes MASTER_ADDR; left out, it is whatever the image resolves itself to.
        "PET_LOCAL_ADDR": node_address(job.name, attempt, ordinal, spec.nodes),
    }
    if spec.rendezvous.backend is RendezvousBackend.STATIC:
        environment["PET_NODE_RANK"] = str(ordinal)
        environment["PET_MASTER_ADDR"] = first
        environment["PET_MASTER_PORT"] = str(spec.rendezvous.port)
    else:
        # Given to the static rendezvous too, it would win over PET_MASTER_*.
        environment["PET_RDZV_ENDPOINT"] = f"{first}:{spec.rendezvous.port}"
    return environment


def process_restarts(spec: DDPJobSpec) -> int:
    """What spec.restart.maxProcessRestarts comes to: how often workers restart inside running pods."""
    if spec.rendezvous.backend not in spec.launcher.traits.restarts_in_place:
        return 0
    asked = spec.restart.max_process_restarts
    return PROCESS_RESTARTS if asked is None else asked


def _rendezvous_conf(rendezvous: Rendezvous, ordinal: int) -> str:
    timeout = str(rendezvous.timeout_seconds)
    if rendezvous.backend is RendezvousBackend.STATIC:
        conf = {"timeout": timeout}
    else:
        conf = {
            "join_timeout": timeout,
            # A store operation must not give up while others are still waited for.
            "read_timeout": timeout,
            # Left to itself, torchrun guesses the host of the store from host names, and two nodes may both believe it.
            "is_host": "1" if ordinal == 0 else "0",
            # What torchrun waits for further nodes once the least number is there: with a fixed number there are none.
            "last_call_timeout": "1",
        }
    conf.update(rendezvous.conf)
    return ",".join(f"{key}={value}" for key, value in conf.items())
