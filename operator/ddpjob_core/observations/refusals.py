"""What prevents the objects of an attempt from being created: names that are taken, and what the API server refuses."""

from datetime import timedelta
from typing import Final

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.names import network_policy_name, service_name
from ddpjob_core.api.network_policy import KIND as NETWORK_POLICY
from ddpjob_core.observations.situation import Situation

TRY_AGAIN_AFTER: Final = timedelta(seconds=10)
"""How long to wait before trying again when a name is taken or a quota is used up."""


def taken_names(situation: Situation) -> dict[ObjectName, str]:
    """Names of this job's objects that others hold, mapped to their owners: as long as they do, nothing is created.

    The others are objects of a job of the same name that was just deleted, which the garbage collector is about to
    remove, or have nothing to do with this operator.
    """
    attempt = situation.attempt
    missing = [name for name, pod in zip(attempt.names, attempt.nodes, strict=True) if pod is None]
    wanted = [ObjectName("Pod", name) for name in missing]
    if situation.observed.service is None:
        wanted.append(ObjectName("Service", service_name(situation.job.name)))
    if situation.isolated_by is not None and situation.observed.network_policy is None:
        wanted.append(ObjectName(NETWORK_POLICY, network_policy_name(situation.job.name)))
    return {name: situation.observed.foreign[name] for name in wanted if name in situation.observed.foreign}


def name_taken(owner: str) -> str:
    """What is wrong with an object that has a name of this job's, and what to do.

    Args:
        owner: its controller, "" if it has none.
    """
    if owner:
        return f"it exists already and belongs to {owner}; waiting until it is deleted"
    return "it exists already and is not this job's: delete it or rename the job"
