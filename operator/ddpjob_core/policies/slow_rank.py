"""spec.slowRank: a rank that slows down the others is moved to another node, once."""

from ddpjob_core.api.status import Replaced
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.slow_rank import replace_at
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.next_attempt import in_next_attempt


def slow_rank(situation: Situation) -> Decision | None:
    """The next attempt, whose pods prefer other nodes; those of this one have their grace period to save."""
    due, status = replace_at(situation), situation.status
    slowest = status.slowest
    if due is None or situation.now < due or slowest is None or slowest.node_name is None:
        return None
    replaced = Replaced(
        attempt=status.attempt,
        rank=slowest.rank,
        node_name=slowest.node_name,
        factor=slowest.factor,
        what=slowest.what,
        time=situation.now,
    )
    # Those that train start again without waiting for nodes for which there was no room, as after a failure.
    left = in_next_attempt(status, replaced=replaced, membership=status.membership)
    return Decision(left, transition=True)
