"""The condition StatusRefused: the status does not show everything, since the API server refuses a part of it."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.observed import Observed
from ddpjob_core.status.conditions import Fact

_REMEDY = (
    "the job is run all the same; check that the CustomResourceDefinition is the one of this version of the operator, "
    "and which admission policies apply to ddpjobs/status"
)


def refused_facts(observed: Observed, status: DDPJobStatus) -> tuple[Fact, ...]:
    """The condition; not set before the first refusal."""
    kind = ConditionType.STATUS_REFUSED
    if observed.status_refused:
        return (Fact(kind, "True", "RefusedByServer", f"{observed.status_refused}: {_REMEDY}"),)
    if status.holds(kind):
        return (Fact(kind, "False", "Accepted", "the API server has accepted the whole status"),)
    return ()
