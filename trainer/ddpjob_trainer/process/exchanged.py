"""What a program exchanges between its ranks besides what this library does."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ddpjob_trainer.process.patience import waits

_UNKNOWN = -1


def exchanges() -> int:
    """How many collectives, and waits for rank 0, the current group has seen; below 0 where that is not known."""
    group: Any = dist.group.WORLD
    # No public function counts.
    backend = None if group is None else group._get_backend(torch.device("cpu"))  # noqa: SLF001
    if backend is None:
        return _UNKNOWN
    return int(backend._get_sequence_number_for_group()) + waits()  # noqa: SLF001


def has_exchanged() -> bool:
    """Whether the current group has seen any collective, as far as that is known."""
    return exchanges() != waits()


def has_own_groups() -> bool:
    """Whether there is any group besides that of all ranks."""
    return len(dist.distributed_c10d._world.pg_map) > 1  # noqa: SLF001 no public function returns them


class Foreign:
    """Notices what the program exchanges between the calls of the library."""

    def __init__(self, *, counts: bool) -> None:
        """Args:
        counts: whether it matters: not every backend counts.
        """
        self._counts = counts
        self._known = 0
        self._seen = False

    @property
    def seen(self) -> bool:
        """Whether the program has exchanged anything."""
        self._look()
        return self._seen

    @contextmanager
    def own(self) -> Iterator[None]:
        """What is exchanged in the body is not the program's."""
        self._look()
        yield
        self._known = exchanges() if self._counts else 0

    def begin(self) -> None:
        """In another group, all is counted from now on."""
        self._known, self._seen = exchanges() if self._counts else 0, False

    def _look(self) -> None:
        self._seen = self._seen or (self._counts and exchanges() != self._known)
