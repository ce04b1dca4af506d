"""Waiting for rank 0 as long as it needs: a collective would fail after the group's timeout.

An evaluation, a save or a load by rank 0 alone may take longer than that. The others wait for a key in the store where
the ranks have met. They do not wait for a rank 0 that is gone: the store is in its process or in its launcher's, and
ends with it.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import torch.distributed as dist

_FOREVER: Final = timedelta(days=7)
"""A store waits at most 24 days: it counts milliseconds in 32 bits."""
_SHORTEST: Final = 0.001
_LONGEST: Final = 0.05
"""Seconds between two looks, where the wait may have to end without rank 0."""
_KEPT: Final = 64
"""Keys that may not have been read by all ranks yet."""


class Patience:
    """Rank 0 says that it has come to a point at which the others wait; all ranks come to the same points."""

    def __init__(self, store: dist.Store, *, first: bool, broken: Callable[[], bool] | None = None) -> None:
        """Args:
        store: where the ranks meet.
        first: whether this is rank 0.
        broken: whether rank 0 need not be waited for any longer; None: it always is.
        """
        self._store = store
        self._first = first
        self._broken = broken
        self._count = 0

    @property
    def count(self) -> int:
        """How many such points the ranks have come to."""
        return self._count

    def wait(self) -> None:
        """Return at once on rank 0, on the others when rank 0 has called this as often.

        Raises:
            RuntimeError: rank 0 is gone.
        """
        self._count += 1
        if not self._first:
            self._wait(_key(self._count))
            return
        self._store.set(_key(self._count), "")
        if self._count > _KEPT:
            self._store.delete_key(_key(self._count - _KEPT))

    def _wait(self, key: str) -> None:
        if self._broken is None:
            self._store.wait([key], _FOREVER)
            return
        pause = _SHORTEST
        while not self._store.check([key]):
            if self._broken():
                raise RuntimeError("connection lost: a rank was replaced while this one waited for rank 0")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)


def wait_for_first() -> None:
    """Wait for rank 0 of the process group to come here; all ranks call it together.

    Raises:
        RuntimeError: rank 0 is gone.
    """
    # MPI has no timeout, and no store.
    if dist.get_world_size() == 1 or dist.get_backend() == "mpi":
        return
    group = dist.group.WORLD
    if group not in _of_group:
        _of_group.clear()
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 no public function returns it
        _of_group[group] = Patience(store, first=dist.get_rank() == 0, broken=_broken.get("by"))
    _of_group[group].wait()


def has_waited() -> bool:
    """Whether the ranks of the current process group have waited for rank 0."""
    return waits() > 0


def waits() -> int:
    """How often they have."""
    return sum(each.count for each in _of_group.values())


def forget_group(broken: Callable[[], bool] | None) -> None:
    """Count from 0 in the process group that has just been joined.

    Args:
        broken: whether rank 0 need not be waited for any longer; None: it always is.
    """
    _of_group.clear()
    _broken["by"] = broken


def _key(count: int) -> str:
    return f"ddpjob/rank-0/{count}"


_of_group: Final[dict[object, Patience]] = {}
"""Of the current process group, whose ranks count together."""

_broken: Final[dict[str, Callable[[], bool] | None]] = {}
