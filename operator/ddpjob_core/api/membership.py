"""The membership as the pods of an elastic job read it: an annotation of theirs, which the kubelet puts into a file."""

import json

from ddpjob_core.api.status import Membership


def membership_text(membership: Membership) -> str:
    """The annotation of the members' pods."""
    return json.dumps({"generation": membership.generation, "nodes": membership.nodes}, separators=(",", ":"))


def parse_membership(text: str | None, attempt: int, most: int) -> Membership | None:
    """What `membership_text` wrote, or None for any other text: anyone who may change pods may have written it.

    Args:
        text: the annotation, None for none.
        attempt: that the pod belongs to.
        most: the greatest number of nodes that the job can have.
    """
    try:
        read = json.loads(text or "")
        generation, nodes = read["generation"], read["nodes"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(generation) is not int or type(nodes) is not int or not (0 <= generation < 2**31 and 1 <= nodes <= most):
        return None
    return Membership(attempt=attempt, generation=generation, nodes=nodes)
