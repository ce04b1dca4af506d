"""When the passing of time alone may change what is to be done about a job."""

from datetime import datetime

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.active_time import active_due
from ddpjob_core.observations.expiry import expires_at
from ddpjob_core.observations.membership import join_again_moments, join_at, shrink_at
from ddpjob_core.observations.node_lost import lost_at
from ddpjob_core.observations.rejoining import rejoin_moments
from ddpjob_core.observations.rendezvous import next_rendezvous_check
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.slow_rank import replace_at
from ddpjob_core.observations.spare_nodes import spare_moments
from ddpjob_core.observations.stall import next_stall_check
from ddpjob_core.observations.startup import has_started, startup_due


def next_moments(situation: Situation, status: DDPJobStatus) -> tuple[datetime, ...]:
    """The moments, in no order; some may have passed.

    Args:
        situation: what is known.
        status: what was decided.
    """
    if status.finished:
        expiry = expires_at(situation)
        return () if expiry is None else (expiry,)
    silent = (*lost_at(situation.observed.pods), *next_rendezvous_check(situation))
    if status.holds(ConditionType.SUSPENDED):
        return silent
    startup = None if has_started(situation) else startup_due(situation)
    dues = (active_due(situation), startup, join_at(situation), shrink_at(situation), replace_at(situation))
    return (
        *(due for due in dues if due is not None),
        *join_again_moments(situation),
        *rejoin_moments(situation),
        *spare_moments(situation),
        *next_stall_check(situation),
        *silent,
    )
