"""A spec that was changed in an unseen suspension: suspended, edited and resumed while the operator was down.

An annotation of the pods says which spec they were created from. Keeping them would train by the old spec, or, with
fewer nodes, end as if the training had succeeded.
"""

from ddpjob_core.children.hashes import spec_hash
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.next_attempt import in_next_attempt


def spec_changed(situation: Situation) -> Decision | None:
    """An attempt whose pods were created from another spec: the next one starts, not counted, as after any resume."""
    attempt = situation.attempt
    # With another number of nodes the pods may have other names: those of before are then not among the present ones.
    renamed = (pod for number, pod in attempt.older.values() if number == attempt.number)
    known = {pod.spec_hash for pod in (*attempt.present, *renamed)} - {None}
    if known <= {spec_hash(situation.spec)} or situation.spec.suspend:
        return None
    return Decision(in_next_attempt(situation.status), transition=True)
