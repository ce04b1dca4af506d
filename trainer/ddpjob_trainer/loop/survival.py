"""How a training goes on when ranks were lost: the other ranks keep their processes, and what they have in memory.

A rank that was killed is replaced by its launcher, and those of a lost node by another pod. The others leave the step
that they were in, form another process group with the new processes, and set the training up again. All take the state
of the rank that has finished the most steps, as a resume takes it from a checkpoint, and the step that was lost is made
again. No finished step is lost.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import nn

from ddpjob_trainer.checkpointing.handover import hand_over
from ddpjob_trainer.checkpointing.snapshot import Snapshot, TrainingState, without_copies
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.loop.optimization import Compression, Optimization
from ddpjob_trainer.process.exchanged import has_exchanged, has_own_groups
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.meeting import NEWS, NotMetError, Overtaken
from ddpjob_trainer.process.patience import has_waited
from ddpjob_trainer.process.regrouping import Regrouping
from ddpjob_trainer.process.stop import Stopped, forget_trainings

_NO_STEP: Final = -1
_SAVED: Final = "saved"
_EPOCH_ENDED: Final = "epochEnded"
_MORE: Final = "more"

_log = logging.getLogger(__name__)


class RankLostError(RuntimeError):
    """A rank was killed, and replaced: the training goes on once all ranks have met again."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a rank has of a training whose step was lost."""

    state: Snapshot
    """Valid until a tensor of the training changes."""
    saved: Position
    """Position of the newest checkpoint; the beginning without one."""
    epoch_ended: bool
    """Whether what follows the end of an epoch was not done yet; of a session's step what follows that."""
    more: dict[str, Any]
    """What else the other ranks need to know."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Where a training goes on."""

    position: Position
    saved: Position
    epoch_ended: bool
    more: dict[str, Any]


class Survival:
    """One rank's part in it."""

    def __init__(
        self,
        group: Group,
        regrouping: Regrouping,
        *,
        name: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        group: the processes of the training.
        regrouping: forms their next group.
        name: of the training.
        clock: seconds.
        """
        self._exchange = group.exchange
        self._rank = group.rank
        self._regrouping = regrouping
        self._name = name or ""
        self._clock = clock
        self._kept: Kept | None = None
        # Whether the training as it is set up now has its state.
        self._complete = False
        # Whether it has ever had one: its parameters are not those that the program has given it.
        self._trained = False
        self._misses = False
        self._rows: list[list[int]] | None = None
        self.started = False
        """Whether listeners know that the training has begun: it does so once per process."""

    @classmethod
    def of(
        cls,
        group: Group,
        models: Iterable[nn.Module],
        how: Optimization,
        *,
        name: str | None,
        exchanged: bool | None = None,
        obstacle: str | None = None,
    ) -> "Survival | None":
        """That of a training which is about to begin; None where a lost rank means that all processes start again.

        Args:
            group: the processes of the training.
            models: that are trained.
            how: a step is computed.
            name: of the training.
            exchanged: whether the program has exchanged anything before; None: whether anybody has.
            obstacle: another reason why it cannot go on.
        """
        regrouping = group.regrouping
        if regrouping is None:
            return None
        reason = _obstacle(models, how) or obstacle
        # A new process would repeat what the program does before its training, which nobody would answer.
        if reason is None and ((has_waited() or has_exchanged()) if exchanged is None else exchanged):
            reason = "the ranks have exchanged something before the training"
        if reason is None:
            return cls(group, regrouping, name=name)
        decline(group, reason)
        return None

    def begin(self) -> None:
        """The training is about to be set up, on this rank; after a replacement on all of them together.

        Raises:
            NotMetError: the ranks do not come together again.
        """
        self._complete, self._rows = False, None
        while self._regrouping.generation:
            try:
                self._regrouping.meet(f"training {self._name}")
                break
            except Overtaken:
                self._regrouping.leave()
                self._regrouping.join()
        self._regrouping.declare(ready=True)

    @property
    def generation(self) -> int:
        """Replacements that this rank knows of; the same on all ranks once they have met."""
        return self._regrouping.generation

    def arrive(self, point: str) -> None:
        """Wait for all ranks to come to another point, if one was replaced, without a collective.

        Raises:
            RankLostError: another one was replaced meanwhile.
            NotMetError: the ranks do not come together again.
        """
        if self._regrouping.generation:
            try:
                self._regrouping.meet(f"{point} {self._name}")
            except Overtaken:
                raise RankLostError("connection lost: another rank was replaced meanwhile") from None

    def arrives(self, point: str) -> bool:
        """The same; whether all ranks have come there."""
        try:
            self.arrive(point)
        except RankLostError:
            return False
        return True

    def give_up(self, reason: str) -> NotMetError:
        """Let all processes start again; returns what to raise."""
        self._regrouping.abandon()
        return NotMetError(f"connection lost: {reason}")

    def end(self) -> None:
        """The training is done: what follows needs the processes that there are."""
        self._regrouping.declare(ready=False)

    def outlives(self, reason: BaseException) -> bool:
        """Whether the training goes on after this exception: of a lost rank, or of ranks alone that were to stop."""
        return self.outlasts_stop() if isinstance(reason, Stopped) else self.survives(reason)

    def survives(self, reason: BaseException) -> bool:
        """Whether an exception comes of a rank that was replaced, or is about to be."""
        if not isinstance(reason, RuntimeError):
            return False
        if not _is_lost_connection(reason):
            return self._is_overtaken_within(0)
        # Of a lost node, the operator has to create another pod.
        return self._is_overtaken_within(NEWS) or (_is_of_the_group(reason) and self._comes_back())

    def explains(self, reason: BaseException) -> bool:
        """Whether an exception that ends this process comes of a rank that was replaced."""
        return isinstance(reason, RuntimeError) and _is_lost_connection(reason) and self._is_overtaken_within(NEWS)

    def is_broken(self) -> bool:
        """Whether a rank of the group is known to be gone."""
        return self._regrouping.is_broken

    def outlasts_stop(self) -> bool:
        """Whether the ranks, all of which have saved, go on without those that were asked to stop.

        A pod that is deleted asks its own ranks alone, and another one takes its place. What ends the whole job asks
        all of them.
        """
        if self._regrouping.rejoin <= 0:
            return False
        self._regrouping.stop()
        return self._is_overtaken_within(self._regrouping.rejoin)

    def _comes_back(self) -> bool:
        """Whether the ranks of a lost node come back in another pod, unless no rank is lost."""
        if self._regrouping.rejoin <= NEWS:
            return False
        with suppress(RuntimeError):
            self._regrouping.lose()
            return self._is_overtaken_within(self._regrouping.rejoin - NEWS, unless=self._regrouping.is_whole)
        return False

    def _is_overtaken_within(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> bool:
        with suppress(RuntimeError):
            return self._regrouping.is_overtaken(seconds, unless=unless)
        return False

    def keep(
        self,
        state: TrainingState,
        position: Position,
        *,
        saved: Position,
        torn: bool,
        epoch_ended: bool,
        more: dict[str, Any] | None = None,
        misses: bool = False,
    ) -> None:
        """Keep what this rank has, before it leaves the group; what it has kept before if it has not gone on since.

        Args:
            state: of the training.
            position: of the last finished step.
            saved: position of the newest checkpoint.
            torn: whether parameters may have changed since.
            epoch_ended: whether what follows the end of an epoch was not done yet.
            more: what else the other ranks need to know, as JSON.
            misses: whether this rank needs what only rank 0 finds after this step.
        """
        if not self._complete:
            return
        self._misses = misses
        try:
            found = None if torn else without_copies(state, position)
        except TypeError as reason:
            _log.warning("this rank cannot give its state to others: %s", reason)
            found = None
        self._kept = None if found is None else Kept(found, saved, epoch_ended, more or {})

    def regroup(self) -> None:
        """Leave the group, and form another one with the process that has taken the place of the lost one.

        Raises:
            NotMetError: the ranks do not come together again.
        """
        began = self._clock()
        _log.info("a rank was lost: this process goes on with the one that takes its place")
        self._regrouping.leave()
        forget_trainings()
        self._regrouping.join()
        _log.info("met the other ranks again after %.1f s", self._clock() - began)

    @property
    def finds(self) -> bool:
        """Whether a rank has a state to go on with; all ranks ask together."""
        return self._regrouping.generation > 0 and max(step for step, *_ in self._every()) != _NO_STEP

    @property
    def is_ruined(self) -> bool:
        """Whether no rank has a state, and one of them has trained: its parameters are of no step; likewise."""
        if self._regrouping.generation == 0 or self.finds:
            return False
        return any(trained for _, _, trained, _ in self._every())

    def take_over(self, state: TrainingState) -> TakenOver | None:
        """Bring all ranks to the state of the one that has finished the most steps; all ranks call it together.

        Args:
            state: of the training, as it was set up on this rank.

        Returns:
            Where it goes on; None if no rank has a state, or none was lost.

        Raises:
            MisfitError: the training was set up in another way on this rank.
            NotMetError: a rank needs what only rank 0 knows, which has not come so far.
        """
        found = self._given(state) if self.finds else None
        self._complete, self._trained, self._kept, self._misses = True, True, None, False
        if found is None:
            return None
        return TakenOver(
            Position(**found["position"]), Position(**found[_SAVED]), bool(found[_EPOCH_ENDED]), found[_MORE]
        )

    def _given(self, state: TrainingState) -> dict[str, Any]:
        """The manifest of the state that all ranks have taken over."""
        every = self._every()
        (step, *_), rank = max((found[:2], -rank) for rank, found in enumerate(every))
        if any(misses for _, _, _, misses in every) and every[0][0] != step:
            raise self.give_up("rank 0 was lost, or left behind, where the others wait for its evaluation")
        kept, source, snapshot = self._kept, -rank, None
        if kept is not None and source == self._rank:
            more = {_SAVED: kept.saved._asdict(), _EPOCH_ENDED: kept.epoch_ended, _MORE: kept.more}
            snapshot = replace(kept.state, manifest={**kept.state.manifest, **more})
        else:
            # It is about to be overwritten.
            self._kept = None
        manifest = hand_over(self._exchange, state, snapshot, source)
        _log.info("the training goes on after step %d, with the state of rank %d", step, source)
        return manifest

    def _every(self) -> list[list[int]]:
        """What each rank has: its step, whether all that follows it is done, whether it has trained, what it misses."""
        if self._rows is None:
            kept = self._kept
            own = [_NO_STEP, 0] if kept is None else [kept.state.step, int(not kept.epoch_ended)]
            self._rows = self._gathered([*own, int(self._trained), int(self._misses)])
        return self._rows

    def _gathered(self, numbers: list[int]) -> list[list[int]]:
        return [each[0].tolist() for each in self._exchange.gather_tensors(torch.tensor([numbers]))]


@contextmanager
def surviving(survival: Survival | None) -> Iterator[None]:
    """What the loss of a rank causes in the body, which is a whole training, becomes a RankLostError.

    Raises:
        RankLostError: a rank was replaced, and the training goes on.
    """
    try:
        yield
    except BaseException as reason:
        if survival is not None and survival.outlives(reason):
            raise RankLostError(str(reason)) from reason
        raise


def decline(group: Group, reason: str) -> None:
    """Say that a lost rank means that all processes start again, and why."""
    if group.regrouping is None:
        return
    if group.first:
        _log.info("if a rank is killed, all processes start again: %s", reason)
    if group.regrouping.is_awaited:
        # The others count on this process.
        group.regrouping.abandon()


def _obstacle(models: Iterable[nn.Module], how: Optimization) -> str | None:
    """Why the ranks of a training cannot go on without the process of another one."""
    if how.shard_optimizer:
        return "shard_optimizer leaves a part of the optimizer's state to each rank alone"
    if how.compression is Compression.POWER_SGD:
        return "compression powersgd keeps what it left out on each rank"
    modules = [each for model in models for each in model.modules()]
    if any(getattr(each, "_compiled_call_impl", None) or hasattr(each, "_orig_mod") for each in modules):
        return "the model is compiled"
    if has_own_groups():
        return "the program has process groups of its own"
    return None


def _is_of_the_group(reason: RuntimeError) -> bool:
    """Whether gloo has lost one, which names its own files: a program may have lost a connection of its own."""
    return "gloo" in str(reason).lower()


def _is_lost_connection(reason: RuntimeError) -> bool:
    """Whether gloo, or a store, has lost one; anything else is the program's own."""
    text = str(reason).lower()
    return isinstance(reason, NotMetError) or "gloo" in text or "connection" in text or "broken pipe" in text
