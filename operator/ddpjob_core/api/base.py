"""What every type of the API shares."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """Base of every type of the API: camelCase on the wire, immutable in Python.

    Unknown fields are ignored on reading: the API server has rejected or pruned them, and an object written by a
    newer version of the operator must stay readable.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    def to_wire(self) -> dict[str, Any]:
        """The object as the API server stores it: aliases as keys, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, the form of metav1.Time."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def parse_time(value: object) -> datetime | None:
    """The moment that an RFC 3339 timestamp names, None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def shortened(limit: int) -> Callable[[object], object]:
    """A validator that shortens text of more than `limit` characters and leaves everything else as it is."""
    return lambda value: value[: limit - 1] + "…" if isinstance(value, str) and len(value) > limit else value


def _truncate(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(microsecond=0)
    return value


Time = Annotated[
    datetime,
    # A status is compared with the one read back, so memory must not hold more precision than the wire.
    BeforeValidator(_truncate),
    PlainSerializer(format_time, return_type=str, when_used="json"),
]
