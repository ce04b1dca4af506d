"""Names that the API accepts, checked before they are part of a request."""

import re
from typing import Final

from ddpjob_core.api.constants import MAX_NAME_LENGTH
from ddpjob_core.api.crd import NAME_RULE
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.names import is_namespace

_JOB: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAMESPACE: Final = 63

NAMESPACE_RULE: Final = (
    f"must be a DNS-1123 label of at most {_LONGEST_NAMESPACE} characters: "
    "lower case letters, digits and '-', starting and ending with a letter or digit"
)


def is_job_name(name: object) -> bool:
    """Whether a DDPJob can have this name."""
    return isinstance(name, str) and len(name) <= MAX_NAME_LENGTH and _JOB.fullmatch(name) is not None


def check_job_name(name: str, given_as: str) -> None:
    """Check the name of a DDPJob.

    Args:
        name: the name.
        given_as: the option or argument that gives it.

    Raises:
        UsageProblem: the name is not valid.
    """
    if not is_job_name(name):
        raise UsageProblem(f"{given_as} {name!r}: {NAME_RULE}")


def check_namespace(name: str, given_as: str) -> None:
    """Check the name of a namespace.

    Args:
        name: the name.
        given_as: the option or argument that gives it.

    Raises:
        UsageProblem: the name is not valid.
    """
    if not is_namespace(name):
        raise UsageProblem(f"{given_as} {name!r}: {NAMESPACE_RULE}", "kubectl get namespaces lists the namespaces")
