"""Keeping an attempt's pods away from nodes that were lost under the one before.

The control plane marks the pods of a silent node some milliseconds before it keeps new pods away from it, and whoever
reacts to the mark at once is scheduled right there. It is a preference: a node that comes back may be the only one.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HIGHEST_WEIGHT: Final = 100


def away_from(nodes: Sequence[str], affinity: object) -> dict[str, Any]:
    """The `affinity` of a pod spec with the wish to be on none of these nodes, as `{"affinity": ...}`.

    Args:
        nodes: names of nodes; none leaves the affinity as it is.
        affinity: the template's own; one that is malformed is left to the API server to refuse.
    """
    own = {} if affinity is None else copy.deepcopy(affinity)
    if not nodes or not isinstance(own, dict):
        return {}
    by_node = own.get("nodeAffinity") or {}
    terms = by_node.get(_PREFERRED) or [] if isinstance(by_node, dict) else None
    if not isinstance(terms, list):
        return {}
    # One name each is all that the API allows here; the requirements of a term must all hold.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    wish = {"weight": _HIGHEST_WEIGHT, "preference": {"matchFields": fields}}
    return {"affinity": {**own, "nodeAffinity": {**by_node, _PREFERRED: [*terms, wish]}}}
