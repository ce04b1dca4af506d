"""Names that are API: users and other tools select, read and write by them."""

from typing import Final

GROUP: Final = "ddpjob.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DDPJob"
PLURAL: Final = "ddpjobs"

LEAST_KUBERNETES: Final = (1, 31)
"""The first version that selects custom resources by a field, such as status.phase."""

INVALID_SPEC: Final = "InvalidSpec"
"""Reason of the condition Failed of a job whose spec cannot work; editing the spec starts such a job again."""

LABEL_JOB: Final = f"{GROUP}/job"
LABEL_UID: Final = f"{GROUP}/uid"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
LABEL_ORDINAL: Final = f"{GROUP}/ordinal"
LABEL_SPARE: Final = f"{GROUP}/spare"
ANNOTATION_SPEC_HASH: Final = f"{GROUP}/spec-hash"
ANNOTATION_MEMBERSHIP: Final = f"{GROUP}/membership"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "ddpjob"
LABEL_NAME: Final = "app.kubernetes.io/name"
OPERATOR_NAME: Final = "ddpjob-operator"
"""The label's value by which the operator's pods are found, for example to be scraped."""

TRAINER_CONTAINER: Final = "trainer"
LAUNCHER_VOLUME: Final = "ddpjob-launcher"
SSH_KEY_VOLUME: Final = "ddpjob-ssh"

# `<name>-a<attempt>-<ordinal>` must fit a host name's 63 characters with the largest attempt and size.
MAX_NAME_LENGTH: Final = 52
MAX_NODES: Final = 10_000
MAX_MEMBERS: Final = 256
"""Nodes of one attempt that can come back in another pod after they were lost."""
MAX_SPARE_NODES: Final = 64
MAX_ATTEMPT: Final = 9_999
MAX_PROCESSES: Final = 256
MAX_RANKS: Final = 100_000
"""Training processes of all nodes together: 10,000 nodes with 8 GPUs each have 80,000."""

RESERVED_ENV_NAMES: Final = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
)
RESERVED_ENV_PREFIXES: Final = ("PET_", "MASTER_", "TORCHELASTIC_", "DDPJOB_")


def is_reserved_env(name: str) -> bool:
    """Whether the launcher or the operator sets this environment variable, so that a user must not."""
    return name in RESERVED_ENV_NAMES or name.startswith(RESERVED_ENV_PREFIXES)
