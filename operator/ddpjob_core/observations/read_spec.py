"""What is read of a job's spec, and of who has changed it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from ddpjob_core.api.extent import extent
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.text import one_line
from ddpjob_core.api.unknown import unknown_in_spec
from ddpjob_core.observations.observed import JobRecord
from ddpjob_core.observations.spec_change import SpecChange, Writer, last_writer, spec_change

Json: TypeAlias = dict[str, Any]

_ERROR_LIMIT: Final = 1024
# What stands in for a field that holds too much: a job with such a field is never started.
_INSTEAD_OF: Final[Mapping[str, Json]] = {"template": {}, "trainer": {"image": "unknown", "command": ["unknown"]}}


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The part of a `JobRecord` that comes of the spec and of who has written it; see there."""

    spec: DDPJobSpec | None
    error: str | None
    too_large: str | None
    unknown: str | None
    """Which field this version does not know."""
    writer: Writer | None
    change: SpecChange | None
    size: int


def read_spec(raw: object, metadata: Json, generation: int, earlier: JobRecord | None) -> ReadSpec:
    """The spec of a job.

    It is read even where the earlier record is of the same generation: an event of a watch from before a change of the
    CustomResourceDefinition lacks fields that a later one has.

    Args:
        raw: the spec.
        metadata: of the job.
        generation: of the job, 0 where it has none.
        earlier: another record of that name.
    """
    bounded, too_large, size = _bounded(raw)
    spec, error = _spec(bounded)
    writer = last_writer(metadata)
    mine = earlier if earlier is not None and earlier.uid == metadata.get("uid") else None
    change = None if mine is None else _change(mine, spec, writer, generation)
    unknown = None if error else unknown_in_spec(bounded)
    return ReadSpec(spec, error, too_large, unknown, writer, change, 0 if spec is None else size)


def _change(earlier: JobRecord, spec: DDPJobSpec | None, writer: Writer | None, generation: int) -> SpecChange | None:
    if earlier.generation == generation:
        return earlier.change
    # Of several generations at once, it does not show who made which.
    before = earlier.writer if generation == earlier.generation + 1 else None
    change = spec_change(earlier.spec, before, spec, writer)
    seen = 0 if earlier.status is None else earlier.status.observed_generation or 0
    # One that has not been reported yet is reported with this one.
    return change.after(earlier.change) if earlier.change is not None and seen < earlier.generation else change


def _bounded(raw: object) -> tuple[object, str | None, int]:
    """The spec without its free fields that hold too much, what is too much about the last of them, and its size."""
    if not isinstance(raw, dict):
        return raw, None, 0
    too_large: str | None = None
    size = 0
    for field, instead in _INSTEAD_OF.items():
        found = extent(raw.get(field))
        if found.excess is None:
            size += found.size
        else:
            raw, too_large = {**raw, field: instead}, f"spec.{field}: {found.excess}"
    return raw, too_large, size


def _spec(raw: object) -> tuple[DDPJobSpec | None, str | None]:
    try:
        return DDPJobSpec.model_validate(raw), None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(("spec", *(str(part) for part in first["loc"])))
        return None, one_line(f"{where}: {first['msg']}", _ERROR_LIMIT)
    except (RecursionError, ValueError, OverflowError) as error:
        return None, one_line(f"spec cannot be read: {error}", _ERROR_LIMIT)
