"""Keeping an attempt's pods away from nodes that were lost under the one before.

The control plane marks the pods of a silent node some milliseconds before it keeps new pods away from it, so a pod that
is created immediately would be scheduled right there. It is a preference: a node that comes back may be the only one.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HIGHEST_WEIGHT: Final = 100


def away_from(nodes: Sequence[str], affinity: object) -> dict[str, Any]:
    """The `affinity` of a pod spec that also prefers none of these nodes, as `{"affinity": ...}`.

    Args:
        nodes: names of nodes; without any the affinity stays as it is.
        affinity: the template's own; a malformed one is left for the API server to reject.
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


def apart_from(labels: Mapping[str, str], affinity: object) -> dict[str, Any]:
    """The `affinity` of a pod spec that also prefers nodes without pods that have these labels. See `away_from`."""
    own = {} if affinity is None else copy.deepcopy(affinity)
    apart = own.get("podAntiAffinity") or {} if isinstance(own, dict) else None
    terms = apart.get(_PREFERRED) or [] if isinstance(apart, dict) else None
    if not isinstance(own, dict) or not isinstance(apart, dict) or not isinstance(terms, list):
        return {}
    pods = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    wish = {"weight": _HIGHEST_WEIGHT, "podAffinityTerm": pods}
    return {"affinity": {**own, "podAntiAffinity": {**apart, _PREFERRED: [*terms, wish]}}}
