"""The Secret with a job's ssh key, which mpirun on node 0 uses to reach the other nodes.

There is one key per job, for its user and its hosts alike: anyone who can read the Secret can run commands in this
job's pods and nowhere else. The operator creates the Secret but can never read it. So its name ends in what nobody
else can work out: anyone who may create Secrets could otherwise create it before, with a key of their own.
"""

from typing import Any, Final

from ddpjob_core.api.constants import SSH_KEY_VOLUME
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.hashes import unguessable
from ddpjob_core.observations.observed import JobRecord

FOLDER: Final = "/ddpjob-ssh"
PRIVATE_KEY: Final = "ssh-privatekey"
PUBLIC_KEY: Final = "ssh-publickey"


def needs_ssh_key(spec: DDPJobSpec) -> bool:
    """Whether the nodes of a job with this spec reach each other by ssh."""
    return spec.launcher.traits.uses_ssh and spec.nodes > 1


def ssh_key_name(job: JobRecord, seed: str = "") -> str:
    """The Secret's name, with the uid: an earlier job of the same name had another."""
    return unguessable(f"{job.name}-ssh-{job.uid}", seed)


def build_ssh_key(job: JobRecord, name: str | None = None) -> Manifest:
    """The Secret's manifest without the key, which is generated when the Secret is created.

    Args:
        job: whose it is.
        name: what `ssh_key_name` makes; None for the name where nobody else makes objects.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(job, name or ssh_key_name(job)),
        # Not of the type kubernetes.io/ssh-auth, which the API server rejects without a key, even in a dry run.
        "type": "Opaque",
        "immutable": True,
    }


def key_volume(name: str) -> dict[str, Any]:
    """The volume of a Secret, readable by any user of the container; the launcher makes the copy that ssh accepts."""
    return {"name": SSH_KEY_VOLUME, "secret": {"secretName": name, "defaultMode": 0o444}}


def key_mount() -> dict[str, Any]:
    """Where the launcher finds the key."""
    return {"name": SSH_KEY_VOLUME, "mountPath": FOLDER, "readOnly": True}
