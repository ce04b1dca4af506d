"""The agent of a job that changes its size, or loses nodes, while it trains.

Each node reads by itself who trains together, stops its workers when that changes, and starts again with another agent
in the same pod. Where only a pod has been replaced, the workers of the other nodes go on if they can. Nodes hear of it
at different moments, so each has to bear that the others are ahead or behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from .agent import Agent, leave
from .failures import is_own
from .log import say
from .membership import LOOK_EVERY, Membership, newer_membership, read_membership
from .report import Failure
from .settings import read_settings
from .signals import AGAIN

# Seconds that a new membership has to arrive once this node has ended: another one may have heard of it first.
_NEWS = 5.0
_NEWS_AFTER_SUCCESS = 2.0
# Seconds between two lines of a node that waits to join.
_SAY_EVERY = 60.0


class ElasticAgent(Agent):
    """Trains with the members that the operator names; of a job whose size is fixed, with all nodes."""

    _membership: Membership | None = None
    _following = False

    def _join(self) -> None:
        """Wait until this node is a member, take over what that means, and watch for the next membership."""
        settings, say_at = self._settings, 0.0
        if not settings.membership_file:
            return
        while True:
            found = read_membership(settings.membership_file)
            if found is not None and self._is_named(found):
                break
            if time.monotonic() >= say_at:
                what = "take the place of a lost node" if settings.spare else "join the training"
                say(f"{settings.this_node()}: ready to {what}")
                say_at = time.monotonic() + _SAY_EVERY
            self._while_waiting()
            time.sleep(LOOK_EVERY)
        found.set_environment(os.environ)
        self._membership, self._settings = found, read_settings(os.environ)
        threading.Thread(target=self._watch, args=(found,), daemon=True).start()

    def _is_named(self, found: Membership) -> bool:
        """Whether this node is a member; a spare node then has the place of one."""
        settings = self._settings
        if settings.spare:
            place = found.place_of(settings.spare)
            if place is not None:
                found.set_place(os.environ, place)
            return place is not None
        # One that has another in its place trains no more, whatever it can reach.
        return settings.node < found.nodes and found.member(settings.node) == settings.member

    def _while_waiting(self) -> None:
        """This node is not a member yet: called again and again."""

    def _watch(self, known: Membership) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            found = newer_membership(self._settings.membership_file, known)
            if found is None:
                continue
            if (found.nodes, found.formed) != (known.nodes, known.formed):
                self._follow(found)
                return
            if self._goes_on(known, found):
                self._membership = known = found

    def _goes_on(self, known: Membership, found: Membership) -> bool:  # noqa: ARG002 -- where workers can go on
        """Whether the workers are in the new generation, in which only pods of other nodes are other ones."""
        if self._settings.node == 0:
            self._give_up(found, "this launcher starts all workers again when a node is lost")
        return False

    def _give_up(self, found: Membership, why: str) -> None:
        """End, so that the operator starts all nodes again: the others wait for what node 0 decides."""
        with self._lock:
            if self._code is not None or self._stopping:
                return
            self._stopping = self._following = True
            self._kill_workers()
            # What ends here has heard of the change, and says what came of it. The cause is the loss of the other node.
            self._membership = found
            super()._end(1, [Failure(f"connection lost: {why}", time.time(), exit_code=1)])
        leave(1)

    def _follow(self, found: Membership) -> None:
        """Stop the workers, and let another agent take this one's place, which waits if this node is not a member."""
        with self._lock:
            if self._code is not None or self._stopping:
                return
            self._stopping = self._following = True
        goes_on = f"the training goes on with {found.nodes} node{'s' if found.nodes > 1 else ''}"
        without = ", and without this one" if self._settings.node >= found.nodes else ""
        late = ""
        if self._waits_for_one_that_leaves(found):
            say(
                f"{goes_on}{without}, from the last checkpoint: ending the workers, which wait for a node that was lost"
            )
        else:
            say(f"{goes_on}{without}: stopping the workers, which have at most {self._patience:g} s")
            late = self._wait_for_workers(self._context, signal.SIGTERM)
        for problem in filter(None, (late.lstrip("; "), *self._not_saved())):
            say(f"WARNING: what was not saved is lost: {problem}")
        # What they have left running would stay for as long as the pod does.
        self._kill_workers()
        leave(AGAIN)

    def _waits_for_one_that_leaves(self, found: Membership) -> bool:  # noqa: ARG002 -- where workers wait
        """Whether the workers wait for those of a lost node that does not come: they can neither save nor stop."""
        return False

    def _kill_workers(self) -> None:
        for pid in self._context.pids().values() if self._context else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _not_saved(self) -> list[str]:
        """What went wrong in workers that were asked to stop."""
        return []

    def _generation(self) -> int | None:
        return None if self._membership is None else self._membership.generation

    def _end(
        self,
        code: int,
        failures: list[Failure] | None = None,
        message: str = "",
        *,
        stopped: bool = False,
        stopped_by: str | None = None,
    ) -> None:
        if stopped_by is None and self._code is None and self._membership is not None:
            # The next attempt need not wait for what the program did by itself.
            patience = _NEWS if code else _NEWS_AFTER_SUCCESS
            self._await_news(0.0 if is_own(failures or []) else patience)
        with self._lock:
            if not self._following:
                super()._end(code, failures, message, stopped=stopped, stopped_by=stopped_by)
                return
        # Workers that were asked to stop say nothing about the job, however they end.
        self._park_if_stopping()

    def _await_news(self, patience: float) -> None:
        """Give a new membership time to arrive: nodes that know it already have stopped their workers and agents."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self._park_if_stopping()
            time.sleep(LOOK_EVERY)

    def _meets_again(self, error: BaseException, begun: float) -> bool:
        """Whether nodes that have not met yet may still do so.

        One that hears of a new membership before node 0 does finds the store of the old one, which goes away then.
        """
        if self._membership is None or self._rounds or type(error).__name__ == "ChildFailedError":
            return False
        # The others may take all of their grace period to stop.
        if time.monotonic() >= begun + self._settings.rendezvous_timeout + self._settings.grace_period:
            return False
        say(f"lost the other nodes before the training began ({type(error).__name__}): trying again")
        time.sleep(LOOK_EVERY)
        return True
