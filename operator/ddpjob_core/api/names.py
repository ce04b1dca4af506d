"""Names of a job's children.

No hashes: job, attempt and ordinal can be read from a name. The attempt in the pod's name keeps a stale DNS
answer, or a pod on a dead node, from ever meeting the next attempt. A pod that takes the place of a lost one within its
attempt ends with the generation of the membership that has brought it, for the same reason.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What a pod's name says: its attempt, which node of the training it is, and which of that node's pods."""

    attempt: int
    ordinal: int
    member: int = 0


@dataclass(frozen=True, slots=True)
class SpareIdentity:
    """What the name of a spare node's pod says: its attempt, and which of that attempt's spares it is."""

    attempt: int
    number: int


_LONGEST_HOST_NAME: Final = 63
_END_OF_POD_NAME: Final = re.compile(r"-a(0|[1-9]\d*)-(\d+)(?:-([1-9]\d*))?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def is_namespace(name: object) -> bool:
    """Whether a namespace can have this name."""
    return isinstance(name, str) and _NAMESPACE.fullmatch(name) is not None


def not_a_namespace(name: str) -> str:
    """What is wrong with one of the names that a flag was given, which no namespace can have."""
    return (
        f"{name[:80]!r} is not a namespace's name: lower case letters, digits and '-', at most 63, starting "
        "and ending with a letter or digit, separated by commas without spaces"
    )


def service_name(job: str) -> str:
    """The headless service through which the pods find each other."""
    return job


def network_policy_name(job: str) -> str:
    """The NetworkPolicy that says who may connect to the pods."""
    return job


def launcher_name(job: str, content: str) -> str:
    """What the name of a ConfigMap that carries a launcher begins with.

    Args:
        job: whose it is.
        content: hash of what it holds. An upgraded operator has another launcher, and a ConfigMap that pods use cannot
            change.
    """
    return f"{job}-launcher-{content}"


def claim_name(job: str) -> str:
    """The claim for checkpoints, if the operator creates it."""
    return f"{job}-checkpoints"


def ordinal_width(nodes: int) -> int:
    """Digits of the largest ordinal.

    torchrun's c10d rendezvous sorts nodes by host name, as text: only with equally long ordinals is that order the
    order of the ordinals (`job-10` sorts before `job-2`).
    """
    return len(str(nodes - 1))


def pod_name(job: str, attempt: int, ordinal: int, nodes: int, member: int = 0) -> str:
    """Name and host name of a pod, at most 63 characters for every job that the API accepts and the node's first pod.

    Args:
        job: whose pod it is.
        attempt: number of the set of pods.
        ordinal: which of them.
        nodes: the most that the attempt can have.
        member: generation of the membership that has brought the pod, 0 for the node's first one.
    """
    name = f"{job}-a{attempt}-{ordinal:0{ordinal_width(nodes)}d}"
    return f"{name}-{member}" if member else name


def is_host_name(name: str) -> bool:
    """Whether a pod's name is short enough to be a host name."""
    return len(name) <= _LONGEST_HOST_NAME


def pod_names(job: str, attempt: int, count: int, nodes: int) -> tuple[str, ...]:
    """The names of the pods from ordinal 0 on: as `pod_name`, without finding the width for each of ten thousand.

    Args:
        job: whose pods they are.
        attempt: number of the set of pods.
        count: how many.
        nodes: the most that the attempt can have.
    """
    prefix, width = f"{job}-a{attempt}-", ordinal_width(nodes)
    return tuple([f"{prefix}{ordinal:0{width}d}" for ordinal in range(count)])


def parse_pod_name(job: str, name: str) -> PodIdentity | None:
    """What `pod_name` put into a name, or None for any other name."""
    match = _END_OF_POD_NAME.fullmatch(name, len(job)) if name.startswith(job) else None
    return PodIdentity(int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def spare_pod_name(job: str, attempt: int, number: int) -> str:
    """Name and host name of the pod of a spare node, which it keeps as a node of the training.

    Args:
        job: whose pod it is.
        attempt: number of the set of pods.
        number: of the spare, from 1 on; each is given once in an attempt.
    """
    return f"{job}-a{attempt}-s{number}"


def parse_spare_pod_name(job: str, name: str) -> SpareIdentity | None:
    """What `spare_pod_name` put into a name, or None for any other name."""
    match = re.fullmatch(re.escape(job) + r"-a(0|[1-9]\d*)-s([1-9]\d*)", name)
    return SpareIdentity(int(match[1]), int(match[2])) if match else None


def attempt_of(job: str, name: str) -> int | None:
    """The attempt that a pod's name says, of a node or a spare; None for any other name."""
    identity = parse_pod_name(job, name) or parse_spare_pod_name(job, name)
    return None if identity is None else identity.attempt
