"""What becomes of a lost rank in a loop of one's own: whether an exception is of one, and whether the loop goes on."""

import logging
from collections.abc import Callable
from typing import Final

from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.loop.registered import Registered
from ddpjob_trainer.loop.survival import Survival, decline
from ddpjob_trainer.process.exchanged import Foreign, has_own_groups
from ddpjob_trainer.process.group import Group

_log = logging.getLogger(__name__)


class Losses:
    """One rank's view of them."""

    def __init__(self, group: Group, is_committed: Callable[[], bool]) -> None:
        """Args:
        group: the processes of the training.
        is_committed: whether the last step that was handed out counts.
        """
        self._group = group
        self._is_committed = is_committed
        self._decided = False
        self._obstacle: str | None = None
        self.foreign: Final = Foreign(counts=group.regrouping is not None)
        """What the program has exchanged."""
        self.survival: Survival | None = None
        """How to go on; None where all processes start again."""
        self.absorbs = False
        """Whether the loop is between the first step that was handed out and the end of the last one."""
        self.lost = False
        """Whether a rank was lost, and the ranks meet when the loop asks for the next step."""
        self.misses = False
        """Whether this rank needs what only rank 0 finds after the last step."""
        self.meets = False
        """Whether the ranks meet once more, at the next step that is computed."""

    def decide(self, registered: Registered, how: Optimization, name: str | None) -> None:
        """Decide once whether the loop can go on, now that everything is registered."""
        if self._decided or self._group.regrouping is None:
            return
        self._decided = True
        self.survival = Survival.of(
            self._group,
            registered.modules,
            how,
            name=name,
            exchanged=self.foreign.seen,
            obstacle=registered.obstacle() or self._obstacle,
        )

    def oppose(self, reason: str) -> None:
        """Something has come to light for which the ranks cannot go on without one of them."""
        self._obstacle = reason
        if self.survival is not None:
            self.survival.end()
            self.survival = None
            decline(self._group, reason)

    def is_lost_by(self, reason: BaseException) -> bool:
        """Whether an exception of the loop comes of a lost rank, without which it goes on at the next step."""
        if not self.absorbs or not isinstance(reason, RuntimeError) or not self.goes_on(reason):
            return False
        self.lost = True
        return True

    def goes_on(self, reason: BaseException) -> bool:
        """Whether the training goes on after an exception."""
        return self.survival is not None and not has_own_groups() and self.survival.outlives(reason)

    def begin(self) -> None:
        """The ranks are about to meet."""
        self.lost = self.misses = self.absorbs = False

    def meet(self) -> None:
        """The ranks have met, those that were there before and those that are new."""
        self.meets = True
        self.foreign.begin()

    def enter(self) -> None:
        """A step is computed: after a loss all ranks come here first, whatever the loop has done before."""
        if self.meets and self.survival is not None:
            self.meets = not self.survival.arrives("the first step of")

    def attempt(self, work: Callable[[], object], *, needs_first: bool = True) -> bool:
        """Call what needs the other ranks, between two steps; whether they have all been there.

        Args:
            work: to call.
            needs_first: whether what rank 0 does after this step is needed on all ranks.
        """
        if not self.lost:
            try:
                work()
            except RuntimeError as reason:
                if not self.is_lost_by(reason):
                    raise
            else:
                return True
        self.misses = self.misses or (needs_first and self._is_committed())
        return False

    def close(self) -> None:
        """The loop asks for no more steps: what follows needs the processes that there are."""
        self.absorbs = False
        if self.survival is not None:
            self.survival.end()

    def end(self, reason: BaseException) -> None:
        """The session ends with an exception."""
        if self.survival is not None and (self.lost or self.survival.explains(reason)):
            _log.error(
                "a rank was lost, and an exception outside of the `with` of a step cannot be taken back: all processes "
                "start again"
            )
            self.survival.give_up("")
