"""Fields of spec that are held fixed while a job runs, as rules on the whole object.

They read the status too: a job that failed for its spec has nothing that runs, and is mended by an edit.
"""

from typing import Final

from pydantic import JsonValue

from ddpjob_core.api.constants import INVALID_SPEC

_ALWAYS_THERE: Final = (
    "nodes",
    "procsPerNode",
    "launcher",
    "rendezvous",
    "backend",
    "trainer",
    "gracePeriodSeconds",
    "metrics",
)
_CAN_BE_LEFT_OUT: Final = ("template", "checkpoint", "elastic")
FIXED_FIELDS: Final = (*_ALWAYS_THERE, *_CAN_BE_LEFT_OUT)

_HAS_INVALID_SPEC: Final = (
    "has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(condition, "
    f"condition.type == 'Failed' && condition.status == 'True' && condition.reason == '{INVALID_SPEC}')"
)


def _fixed(field: str) -> JsonValue:
    same = f"self.spec.{field} == oldSelf.spec.{field}"
    if field == "elastic":
        parts = ("minNodes", "maxNodes", "scaleDownAfterSeconds", "rejoinSeconds")
        same = "({})".format(" && ".join(f"self.spec.elastic.{part} == oldSelf.spec.elastic.{part}" for part in parts))
    if field in _CAN_BE_LEFT_OUT:
        same = f"(has(self.spec.{field}) ? has(oldSelf.spec.{field}) && {same} : !has(oldSelf.spec.{field}))"
    elastic = "(has(self.spec.elastic) && has(oldSelf.spec.elastic)) || " if field == "nodes" else ""
    with_elastic = "; with spec.elastic the number of nodes can change at any time" if field == "nodes" else ""
    if field == "elastic":
        with_elastic = "; spec.elastic.spareNodes can change at any time"
    return {
        "rule": f"oldSelf.spec.suspend || {same} || {elastic}{_HAS_INVALID_SPEC}",
        "message": f"spec.{field} can change only while the job is suspended: set spec.suspend to true, change the field, "
        "then set spec.suspend to false; a finished job does not start again: delete it, then apply it again"
        f"{with_elastic}",
        "fieldPath": f".spec.{field}",
    }


def fixed_field_rules() -> list[JsonValue]:
    """A rule for each of these fields: it changes only while the job is suspended, or has failed for its spec.

    The number of nodes of an elastic job changes at any time.
    """
    return [_fixed(field) for field in FIXED_FIELDS]
