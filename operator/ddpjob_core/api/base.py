"""What every type of the API shares."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel

from ddpjob_core.api.text import last_lines, one_line

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


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
    """The moment that an RFC 3339 timestamp names, None for anything else.

    Moments before 1970, such as Go's zero time, and after the year 8999 are none.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        in_utc = moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
    return in_utc if in_utc is not None and _EARLIEST <= in_utc < _LATEST else None


def as_line(limit: int) -> Callable[[object], object]:
    """A validator that makes text one printable line of at most `limit` characters and leaves everything else."""
    return lambda value: one_line(value, limit) if isinstance(value, str) else value


def as_lines(limit: int) -> Callable[[object], object]:
    """A validator that makes text printable lines, and keeps the last `limit` characters of them."""
    return lambda value: last_lines(value, limit) if isinstance(value, str) else value


def _moment(value: object) -> object:
    """A moment with whole seconds, at which any span that a spec may have can be added to it or taken from it."""
    if not isinstance(value, datetime):
        # Text: what cannot be read is refused.
        return parse_time(value)
    # In the first and the last hours of all time another time zone has no date.
    near = value if _EARLIEST.year < value.year < _LATEST.year else value.replace(tzinfo=UTC)
    return min(max(near.astimezone(UTC), _EARLIEST), _LATEST - timedelta(seconds=1)).replace(microsecond=0)


Time = Annotated[
    datetime,
    # A status is compared with the one read back, so memory must not hold more precision than the wire.
    BeforeValidator(_moment),
    PlainSerializer(format_time, return_type=str, when_used="json"),
]
