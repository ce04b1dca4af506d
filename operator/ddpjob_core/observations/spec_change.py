"""Which program changed the spec of a job last, and what, as far as the object itself shows it.

The API server writes into `metadata.managedFields` which program (field manager) set a field, and when. It does not
write which user that was: only its audit log has users.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.text import one_line

_LONGEST_NAME: Final = 128
"""Of a field manager, as the API server bounds it."""
_NAMED: Final = 4
"""Fields that are named at most."""
_OF_THE_SPEC: Final = (None, "scale")
"""Subresources that the spec is written through."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The program that wrote fields of the spec last, and when, in RFC 3339."""

    name: str
    time: str


@dataclass(frozen=True, slots=True)
class SpecChange:
    """The newest generation of a spec, compared with the one before it.

    `by` are the programs that made it, none if the object does not show it: who only removes fields leaves no trace.
    `fields` are paths such as `spec.nodes`; none if the generation before is not known.
    """

    by: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    def after(self, earlier: "SpecChange") -> "SpecChange":
        """Both changes as one."""
        by = tuple(dict.fromkeys((*earlier.by, *self.by))) if earlier.by and self.by else ()
        # More than are named are as good as not known: there may be thousands before any is reported.
        return SpecChange(by if len(by) <= _NAMED else (), tuple(dict.fromkeys((*earlier.fields, *self.fields))))

    def sentence(self, generation: int) -> str:
        """What happened, for an Event."""
        what = ", ".join(self.fields[:_NAMED]) or "the spec"
        more = f" and {len(self.fields) - _NAMED} more" if len(self.fields) > _NAMED else ""
        many = len(self.fields) > 1
        did = (
            f"{', '.join(self.by)} changed {what}{more}"
            if self.by
            else f"{what}{more} {'were' if many else 'was'} changed"
        )
        return f"{did} (generation {generation})"


def last_writer(metadata: Mapping[str, Any]) -> Writer | None:
    """The program that wrote fields of the spec last; None where the metadata name none."""
    entries = metadata.get("managedFields")
    found = [_writer(each) for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    # Of two in the same second, the later one in the list: the API server sorts by time as well.
    return max(reversed([each for each in found if each is not None]), key=lambda each: each.time, default=None)


def spec_change(
    before: DDPJobSpec | None, writer_before: Writer | None, after: DDPJobSpec | None, writer: Writer | None
) -> SpecChange:
    """How a spec differs from that of the generation before it.

    Args:
        before: the earlier one, None where it is unknown or could not be read.
        writer_before: who had written it; None where that is unknown, or generations between the two were missed.
        after: the newer one, None where it cannot be read.
        writer: who has written it.
    """
    fields = changed_fields(before, after) if before is not None and after is not None else ()
    # A writer who was there before has not made this change.
    by = (writer.name,) if writer is not None and writer_before is not None and writer != writer_before else ()
    return SpecChange(by, fields)


def changed_fields(before: BaseModel, after: BaseModel, path: str = "spec") -> tuple[str, ...]:
    """The paths of the fields in which two objects of one type differ; those of free form are not looked into."""
    found: list[str] = []
    for name, field in type(before).model_fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        here = f"{path}.{field.alias or name}"
        inner = isinstance(old, BaseModel) and isinstance(new, BaseModel) and type(old) is type(new)
        found += changed_fields(old, new, here) if inner else (here,)
    return tuple(found)


def _writer(entry: Mapping[str, Any]) -> Writer | None:
    fields, name, time = (entry.get(key) for key in ("fieldsV1", "manager", "time"))
    if not isinstance(fields, dict) or "f:spec" not in fields or entry.get("subresource") not in _OF_THE_SPEC:
        return None
    if not isinstance(name, str) or not isinstance(time, str):
        return None
    return Writer(one_line(name, _LONGEST_NAME), time)
