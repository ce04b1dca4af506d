"""The global batch of a training: chosen when it begins, kept in checkpoints, shared by the ranks that there are."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from ddpjob_trainer.data.sharing import Share, StepSize
from ddpjob_trainer.data.source import Source
from ddpjob_trainer.loop.batch_policy import BatchPolicy, Began, began_with, step_size
from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.process.group import Group

_NAMED = 3
"""Modules that a message names."""

_log = logging.getLogger(__name__)


class GlobalBatch:
    """How large the steps of a training are; itself a state, for checkpoints."""

    def __init__(self, how: Optimization, group: Group, *, several: bool = True) -> None:
        """Args:
        how: a step is computed.
        group: the processes of the training.
        several: whether the loop takes any number of batches per step and rank.
        """
        self._how = how
        self._group = group
        self._several = several
        self._began: Began | None = None
        # Whether that comes from this process, and not from a checkpoint.
        self._own = False
        self.size = StepSize(how.accumulate, group.world_size)
        """Of a step; before `begin` that of a training from the beginning."""

    def begin(self, source: Source, models: Iterable[nn.Module], *, over: bool = False) -> StepSize:
        """The size of the steps that are left, now that the state of a checkpoint is loaded.

        Args:
            source: of the batches.
            models: that are trained.
            over: no step is left: nothing is decided.

        Raises:
            MisuseError: an epoch has no step of this size; on all ranks.
        """
        before, policy, this_process = self._began, self._how.policy, self._own
        now = Began(source.batch_size, self._how.accumulate, self._group.world_size)
        began = began_with(policy, before, now, this_process=this_process)
        self.size = step_size(began, now.ranks, several=self._several)
        if over:
            return self.size
        source.check_step(self.size)
        self._began, self._own = began, True
        if before is not None and not this_process and self._group.first:
            for level, message in _changes(policy, before, began, now, self.size, divides=source.divides):
                _log.log(level, message)
            if began.ranks != now.ranks:
                for message in self._batch_norms_changed(began, now, models, divides=source.divides):
                    _log.warning(message)
        return self.size

    def state_dict(self) -> dict[str, int]:
        """What it follows from."""
        return {} if self._began is None else self._began.state()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue with the global batch of a checkpoint.

        Raises:
            ValueError: it is damaged.
        """
        # A loop of one's own may save before its first step.
        self._began, self._own = Began.of(state_dict) if state_dict else None, False

    def _batch_norms_changed(
        self, began: Began, now: Began, models: Iterable[nn.Module], *, divides: bool
    ) -> Iterator[str]:
        """What BatchNorm does otherwise than with the ranks that the training began with."""
        alone, together = _batch_norms(models, synchronised=self._how.sync_batch_norm)
        instead = f"with {_ranks(now.ranks)} instead of {began.ranks}"
        # Only what shares samples has batches of another size.
        lengths = _lengths(now, self.size) if divides else []
        if alone and lengths and (lengths[0], lengths[-1]) != (began.batch_size, began.batch_size):
            found = f"{lengths[0]}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]}"
            refused = ", and torch refuses a batch of one value per channel" if lengths[0] <= 1 else ""
            yield (
                f"{instead}, BatchNorm normalises over batches of {found} samples instead of {began.batch_size}, which "
                f"changes what is learnt{refused}: {_listed(alone)}. Use Optimization(sync_batch_norm=True), on GPUs, "
                "or layers that do not depend on the batch, such as GroupNorm"
            )
        batches = -(-self.size.batches // now.ranks)
        if together and batches != began.accumulate:
            yield (
                f"{instead}, a step has {batches} batches per rank instead of {began.accumulate}, and SyncBatchNorm "
                f"normalises over each of them by itself, which changes what is learnt: {_listed(together)}"
            )


def _changes(
    policy: BatchPolicy, before: Began, began: Began, now: Began, size: StepSize, *, divides: bool
) -> Iterator[tuple[int, str]]:
    """Levels and messages that say what is otherwise than before the resume."""
    if not before.same_program(now):
        if before.words() != began.words():
            yield (
                logging.WARNING,
                (
                    "the program asks for other batches than the checkpoint has: the global batch is now "
                    f"{began.words()} instead of {before.words()}"
                ),
            )
    elif policy is BatchPolicy.SCALE:
        if before.ranks != now.ranks:
            yield (
                logging.INFO,
                f"the global batch is now {now.words()} instead of {before.words()}: it scales with the ranks",
            )
    elif size.ranks < began.ranks:
        yield (
            logging.WARNING,
            (
                f"the loop takes one batch per step, so that with {_ranks(now.ranks)} instead of {began.ranks} the "
                f"global batch is {began.words(size.ranks)} instead of {began.words()}: with "
                'Optimization(batch_policy="constant"), `with step as batches` gives all batches of a step'
            ),
        )
    elif began.ranks != now.ranks:
        yield (
            logging.INFO,
            (
                f"the global batch stays {began.words()}, with which the training began on {_ranks(began.ranks)}: "
                f"{_ranks(now.ranks)} {'shares' if now.ranks == 1 else 'share'} it"
            ),
        )
        idle = now.ranks - size.batches * (now.batch_size if divides else 1)
        if idle > 0:
            yield (
                logging.WARNING,
                (
                    f"{idle} of {_ranks(now.ranks)} have nothing to compute: a step has {began.words()}"
                    f"{'' if divides else ', in whole batches'}. Use fewer ranks, or "
                    'Optimization(batch_policy="scale"), with which the global batch grows with them'
                ),
            )


def _batch_norms(models: Iterable[nn.Module], *, synchronised: bool) -> tuple[list[str], list[str]]:
    """Names of the layers that normalise over the batch of a rank, and over those of all ranks."""
    alone, together = list[str](), list[str]()
    for model in models:
        for name, each in model.named_modules():
            if isinstance(each, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 no public class is the base of all
                of_all = synchronised or isinstance(each, nn.SyncBatchNorm)
                (together if of_all else alone).append(name or type(each).__name__)
    return alone, together


def _lengths(now: Began, size: StepSize) -> list[int]:
    """Sizes of all batches of a step, on all ranks, the smallest first."""
    one = now.batch_size
    shares = (Share(one * size.batches, 0, rank, now.ranks, one, size) for rank in range(now.ranks))
    return sorted(length for share in shares for length in share.lengths(share.size))


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"
