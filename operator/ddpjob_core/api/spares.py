"""Spare nodes of a job, as its status has them."""

from typing import Annotated

from pydantic import Field

from ddpjob_core.api.base import ApiModel, Time
from ddpjob_core.api.constants import MAX_SPARE_NODES
from ddpjob_core.api.counts import Count


class SparePod(ApiModel):
    """Pod of a spare node."""

    number: Count
    """Number of the spare in its attempt; the pod's name ends with it."""
    created: bool = False
    """Whether the pod has been seen. From then on, a missing one is replaced by one with another number."""


class Spares(ApiModel):
    """Spare nodes of an attempt. See spec.elastic.spareNodes."""

    last: Count = 0
    """Greatest number that was given to a spare; none is given twice."""
    waiting: Annotated[list[SparePod] | None, Field(max_length=MAX_SPARE_NODES)] = None
    """Spares that wait to be named."""
    failures: Count = 0
    """Number of failures of spares in a row, which determines how long the next one is waited with."""
    time: Time | None = None
    """Time at which a spare was last asked for, or failed."""
