"""The membership as the pods of an elastic job read it: an annotation of theirs, which the kubelet puts into a file."""

import json
from collections.abc import Mapping
from typing import Any

from ddpjob_core.api.constants import MAX_MEMBERS
from ddpjob_core.api.status import Member, Membership


def generations_of(membership: Membership) -> dict[int, int]:
    """Of the nodes that have a later pod than their first one, the generation that has brought it, by ordinal."""
    return {each.ordinal: each.generation for each in membership.members or ()}


def spares_of(membership: Membership) -> dict[int, int]:
    """Of the nodes that were spares before, the number of the spare, by ordinal."""
    return {each.ordinal: each.spare for each in membership.members or () if each.spare is not None}


def membership_text(membership: Membership) -> str:
    """The annotation of the members' pods."""
    told: dict[str, Any] = {"generation": membership.generation, "nodes": membership.nodes}
    if membership.formed_in != membership.generation:
        told["formed"] = membership.formed_in
    if membership.members:
        told["members"] = {str(ordinal): member for ordinal, member in generations_of(membership).items()}
    spares = {str(at): spare for at, spare in spares_of(membership).items() if at < membership.nodes}
    if spares:
        told["spares"] = spares
    return json.dumps(told, separators=(",", ":"))


def parse_membership(text: str | None, attempt: int, most: int) -> Membership | None:
    """What `membership_text` wrote, or None for any other text: anyone who may change pods may have written it.

    Args:
        text: the annotation, None for none.
        attempt: that the pod belongs to.
        most: the greatest number of nodes that the job can have.
    """
    try:
        read = json.loads(text or "")
        generation, nodes, formed = read["generation"], read["nodes"], read.get("formed")
        members = {int(ordinal): member for ordinal, member in read.get("members", {}).items()}
        spares = {int(ordinal): spare for ordinal, spare in read.get("spares", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if type(generation) is not int or type(nodes) is not int or not (0 <= generation < 2**31 and 1 <= nodes <= most):
        return None
    if formed is not None and (type(formed) is not int or not 0 <= formed < generation):
        return None
    known = (
        []
        if not _are_spares(spares, members)
        else [
            Member(ordinal=ordinal, generation=member, spare=spares.get(ordinal))
            for ordinal, member in sorted(members.items())
            if 0 <= ordinal < most and type(member) is int and 0 < member <= generation
        ]
    )
    if len(known) != len(members) or len(known) > MAX_MEMBERS:
        return None
    return Membership(attempt=attempt, generation=generation, nodes=nodes, formed=formed, members=known or None)


def _are_spares(spares: Mapping[int, object], members: Mapping[int, object]) -> bool:
    """Whether each of these is another number, of a node that has a later pod than its first one."""
    numbers = [spare for spare in spares.values() if type(spare) is int and 0 < spare < 2**31]
    return spares.keys() <= members.keys() and len(set(numbers)) == len(spares)
