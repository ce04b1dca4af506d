"""The Secret of a job's ssh key, by which mpirun on node 0 reaches the other nodes.

One key for each job, for its user and its hosts alike: who may read the Secret may run commands in this job's pods and
nowhere else. The operator makes it and can never read it, so its name has to be one that nobody else takes.
"""

from typing import Any, Final

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.observations.observed import JobRecord

VOLUME: Final = "ddpjob-ssh"
FOLDER: Final = "/ddpjob-ssh"
PRIVATE_KEY: Final = "ssh-privatekey"
PUBLIC_KEY: Final = "ssh-publickey"


def needs_ssh_key(spec: DDPJobSpec) -> bool:
    """Whether the nodes of such a job reach each other by ssh."""
    return spec.launcher.traits.uses_ssh and spec.nodes > 1


def ssh_key_name(job: JobRecord) -> str:
    """The Secret's name: of this very job, as its uid tells, and not of another that had its name."""
    return f"{job.name}-ssh-{job.uid}"


def build_ssh_key(job: JobRecord) -> Manifest:
    """The Secret's manifest without the key, which is made when the Secret is."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(job, ssh_key_name(job)),
        # Not of the type kubernetes.io/ssh-auth, which the API server refuses without a key, in a dry run too.
        "type": "Opaque",
        "immutable": True,
    }


def key_volume(job: JobRecord) -> dict[str, Any]:
    """The volume: readable for whatever user the container has; the launcher makes the copy that ssh accepts."""
    return {"name": VOLUME, "secret": {"secretName": ssh_key_name(job), "defaultMode": 0o444}}


def key_mount() -> dict[str, Any]:
    """Where the launcher finds the key."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
