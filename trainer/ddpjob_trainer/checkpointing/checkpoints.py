"""Checkpoints of a whole training: after a resume every rank continues as if nothing had happened.

Only rank 0 accesses the volume, so it need only be reachable from its node; the others receive what it read.
A checkpoint's folder holds `model.safetensors`, which can be used by itself, `optimizer.safetensors`,
`random.safetensors` (one tensor per rank) and the manifest with everything that is not a tensor.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import torch

from ddpjob_trainer.checkpointing.ancestry import JobIdentity, older_stores, sign
from ddpjob_trainer.checkpointing.background import Background
from ddpjob_trainer.checkpointing.best import load_best
from ddpjob_trainer.checkpointing.host_copies import ChangedError
from ddpjob_trainer.checkpointing.naming import folder_of
from ddpjob_trainer.checkpointing.reading import Opened, distribute, forms_of, open_to_continue
from ddpjob_trainer.checkpointing.restoring import MisfitError, Restoring
from ddpjob_trainer.checkpointing.shards import Shards
from ddpjob_trainer.checkpointing.snapshot import (
    FILES,
    RANDOM,
    Snapshot,
    Snapshots,
    Stateful,
    TrainingState,
    check,
    without_copies,
)
from ddpjob_trainer.checkpointing.step_gate import Pause, StepGate
from ddpjob_trainer.checkpointing.storage import ResumeError, SupersededError
from ddpjob_trainer.checkpointing.store import CheckpointStore
from ddpjob_trainer.checkpointing.tensor_file import write_tensors
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.exchange import Gathering, StreamError
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.patience import wait_for_first

__all__ = ["Checkpoints", "MisfitError", "SaveError"]

_NONE: Final = -1
"""Stands for a missing step."""

_log = logging.getLogger(__name__)


class SaveError(RuntimeError):
    """Rank 0 could not write a checkpoint."""


class Checkpoints:
    """Saves and resumes a training; all ranks call its methods together, except where noted."""

    def __init__(
        self,
        folder: CheckpointStore,
        group: Group,
        *,
        owner: JobIdentity | None = None,
        resume_from: str | None = None,
        asynchronous: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        folder: where rank 0 reads and writes; unused on the others.
        group: the processes of the training.
        owner: the job that the folder belongs to; None leaves it unnamed.
        resume_from: name of the older job to continue while the folder holds no intact checkpoint.
        asynchronous: `save` returns once rank 0 has copied the state, in memory that it keeps for the next copy, and a
            thread of rank 0 writes it.
        clock: seconds; only differences count.
        """
        self._folder = folder
        self._first = group.first
        self._rank = group.rank
        self._exchange = group.exchange
        self._owner = owner
        self._resume_from = resume_from
        self._asynchronous = asynchronous
        self._background = Background()
        self._snapshots = Snapshots()
        self._clock = clock
        self._gate = StepGate(clock)
        self._shards = Shards(group.exchange)
        self._durable: int | None = None

    @classmethod
    def of_job(
        cls,
        group: Group,
        path: str | None = None,
        *,
        keep_last: int | None = None,
        asynchronous: bool = False,
        name: str | None = None,
    ) -> Self | None:
        """The checkpoints of the job that this process belongs to.

        Args:
            group: the processes of the training.
            path: folder, or address in an object store, for the checkpoints of jobs; those of this job are in
                `<path>/<uid>`, or in the path itself without an operator; None uses the operator's setting.
            keep_last: how many checkpoints are kept; None uses the operator's setting, or 3.
            asynchronous: write in a thread of rank 0 while the training continues.
            name: of one of several trainings in the job: its checkpoints are in a folder of this name within.

        Returns:
            None if neither the path nor the operator names a folder.

        Raises:
            MisuseError: an older job should be continued, but its folder or the identity of this job is unknown; or the
                name cannot be that of a folder.
        """
        job = group.environment.job
        folder = folder_of(job, path, name=name, keep_last=keep_last)
        if folder is None:
            return None
        owner = JobIdentity(job.name, job.namespace, job.uid) if job.uid else None
        return cls(folder, group, owner=owner, resume_from=job.resume_from, asynchronous=asynchronous)

    @property
    def location(self) -> str:
        """Folder of the checkpoints, or their address in an object store."""
        return str(self._folder)

    @property
    def asynchronous(self) -> bool:
        """Whether a save continues after `save` has returned."""
        return self._asynchronous

    def save(
        self, state: TrainingState, position: Position, *, during_next_step: bool = False, keep: int | None = None
    ) -> Pause:
        """Save a checkpoint of this position, after waiting for a previous asynchronous one.

        Args:
            state: of the training.
            position: of the training.
            during_next_step: with asynchronous saves, also copy parameters and the optimizer's tensors after `save` has
                returned; the optimizer's next step waits for that. For a loop that does not change them in any other
                way until then (a change by `.data` would go unnoticed); takes effect after `prepare` and a step.
            keep: step of an older checkpoint to keep in addition to the newest ones, such as the best one.

        Returns:
            How long the training pauses on this rank.

        Raises:
            SaveError: rank 0 could not, or must not, write this one or the previous one; raised on every rank, so that
                none continues as if the checkpoint existed.
        """
        before, pause = self._clock(), Pause()
        generators = self._exchange.begin_to_gather(randomness.capture(), randomness.CAPACITY)
        reason = None
        if self._first:
            reason = self._save(state, position, generators, pause if during_next_step else None, keep)
        elif state.owners is not None:
            self._shards.give(state, position.step, self._background, asynchronous=self._asynchronous)
        self._agree(reason)
        pause.seconds += self._clock() - before
        return pause

    def check(self, state: TrainingState) -> None:
        """Check that a state can be saved and restored as it is, which otherwise the first save would find.

        Any rank may call it by itself, between two steps.

        Raises:
            MisuseError: it holds something that a checkpoint cannot; the message names it.
        """
        try:
            check(state)
            self._shards.check(state, asynchronous=self._asynchronous)
        except TypeError as unsuitable:
            raise MisuseError(f"no checkpoint could be saved: {unsuitable}") from unsuitable

    def prepare(self, state: TrainingState) -> None:
        """Check the state again, and prepare the memory for asynchronous saves, which the first one would wait for.

        Any rank may call it by itself, between two steps. Optimizers have their full state after the first step.

        Raises:
            MisuseError: as for `check`.
        """
        self.check(state)
        if not self._asynchronous or not self._first:
            return
        self._gate.watch(state.optimizer)
        if self._background.idle:
            reserve = self._snapshots.reservation(state)

            def reserve_and_say() -> None:
                _log.info("asynchronous checkpoints keep a copy of %s in this process", _size(reserve()))

            self._background.start(reserve_and_say)

    def finish(self) -> None:
        """Wait until what is being saved is on disk. Call it at the end of a training.

        Raises:
            SaveError: rank 0 could not write it; raised on every rank.
        """
        self._agree(self._background.wait())

    def durable_step(self) -> int | None:
        """Step of the newest checkpoint of this process that is on disk, None before the first.

        Any rank may call it by itself, after every step: rank 0 knows immediately, the others as of the last save or
        `finish`.

        Raises:
            SaveError: an asynchronous save has failed; only on rank 0, whose end the others notice.
        """
        if self._background.failed:
            raise SaveError(self._background.wait())
        return self._durable

    def close(self) -> None:
        """Wait for what is being saved, without the other ranks, which may be gone; a failure is only logged."""
        self._background.wait()

    def resume(self, state: TrainingState) -> Position | None:
        """Restore the newest intact checkpoint into the state, and every rank's random numbers.

        Returns:
            The position of the checkpoint, or None if none exists.

        Raises:
            MisfitError: the checkpoint is intact, but belongs to another model or optimizer.
            ResumeError: checkpoints exist, but none can be used; on every rank. On rank 0 it is a NothingToResumeError
                if the older job to continue has none.
        """
        # What a save is still copying is about to change.
        self._gate.wait()
        opened: Opened | None = None
        failure: ResumeError | None = None
        if self._first:
            try:
                opened = open_to_continue(self._folder, self._owner, self._resume_from)
            except ResumeError as unusable:
                failure = unusable
        wait_for_first()
        with nullcontext() if opened is None else closing(opened):
            found = None if opened is None else [opened.manifest, opened.forms]
            found, reason = self._exchange.broadcast_json([found, None if failure is None else str(failure)])
            if reason is not None:
                raise failure or ResumeError(reason)
            if found is None:
                return None
            manifest, forms = found[0], forms_of(found[1])
            restoring = Restoring(state, manifest, forms)
            own = (RANDOM, str(self._rank))
            generators = torch.empty(forms[own][1], dtype=torch.uint8) if own in forms else None
            try:
                distribute(
                    self._exchange, forms, opened, lambda name: generators if name == own else restoring.target(name)
                )
            except StreamError as unreadable:
                raise ResumeError(f"the checkpoint cannot be read to its end: {unreadable}") from unreadable
        restoring.finish()
        self._restore_random_numbers(manifest, generators)
        return Position(**manifest["position"])

    def load_best(self, model: Stateful, *, step: int | None = None) -> int | None:
        """Load the model as it was at the best evaluation, after the training that kept its checkpoint, or elsewhere.

        Args:
            model: receives its state.
            step: of that checkpoint; None: the newest one knows it.

        Returns:
            The step of that checkpoint; None if the newest one knows of no best evaluation, or there is none.

        Raises:
            MisfitError: the checkpoint belongs to another model.
            ResumeError: it is not there, not intact, or cannot be read; on every rank.
        """
        self._gate.wait()
        older: Iterable[CheckpointStore] = ()
        if self._resume_from is not None and self._owner is not None:
            older = older_stores(self._folder, self._owner, self._resume_from)
        return load_best(chain([self._folder], older), self._exchange, model, first=self._first, step=step)

    def _agree(self, reason: str | None) -> None:
        wait_for_first()
        # Text takes two collectives, and the training waits for each: usually there is no reason to send.
        failed, durable = self._exchange.first(reason is not None, _NONE if self._durable is None else self._durable)
        # Rank 0 may be ahead by now.
        if not self._first:
            self._durable = None if durable == _NONE else int(durable)
        if failed:
            raise SaveError(self._exchange.broadcast_json(reason))

    def _save(
        self,
        state: TrainingState,
        position: Position,
        generators: Gathering,
        pause: Pause | None,
        keep: int | None,
    ) -> str | None:
        """Write a checkpoint, or begin to; returns why it, or the previous one, could not be written."""
        reason, snapshot = self._background.wait(), None
        try:
            snapshot = None if reason is not None else self._snapshot(state, position, pause)
        except TypeError as unsuitable:
            reason = _reason(position.step, unsuitable)
        reason, parts = self._shards.parts(state, position.step, reason)
        if snapshot is None or reason is not None:
            return reason
        own = snapshot
        if not self._asynchronous:
            with self._shards.whole(own, parts) as whole:
                return self._write(whole, generators.result(), keep)

        def write() -> str | None:
            try:
                self._snapshots.copy_rest(own)
                changed = None
            except ChangedError as found:
                changed = self._reported(_reason(position.step, found))
            finally:
                self._gate.open()
            with self._shards.whole(own, parts) as whole:
                # What the others send is read in any case.
                if changed is not None:
                    return changed
                self._snapshots.wait()
                return self._write(whole, generators.result(), keep)

        if pause is not None and snapshot.remaining:
            self._gate.close(pause)
        try:
            self._background.start(write)
        except BaseException:
            self._gate.open()
            raise
        return None

    def _snapshot(self, state: TrainingState, position: Position, pause: Pause | None) -> Snapshot:
        if not self._asynchronous:
            return without_copies(state, position)
        later = self._gate.stable(state.optimizer) if pause is not None else frozenset()
        return self._snapshots.take(state, position, later)

    def _write(self, snapshot: Snapshot, generators: list[bytes], keep: int | None) -> str | None:
        """Write a checkpoint; returns why it could not be written."""
        tensors = snapshot.with_random_numbers(generators)

        def write(folder: Path) -> None:
            for name in FILES:
                write_tensors(tensors[name], folder / f"{name}.safetensors")

        try:
            if self._owner is not None:
                sign(self._folder, self._owner)
            self._folder.save(snapshot.step, snapshot.manifest, write, keep=keep)
        except (OSError, SupersededError, TypeError) as failure:
            return self._reported(_reason(snapshot.step, failure))
        self._durable = snapshot.step
        return None

    def _reported(self, reason: str) -> str:
        if self._asynchronous:
            # The training may not ask for a while.
            _log.error("%s", reason)
        return reason

    def _restore_random_numbers(self, manifest: dict[str, Any], saved: torch.Tensor | None) -> None:
        if saved is not None:
            randomness.restore(bytes(saved.numpy()))
            return
        # There are more ranks than before: a new rank draws numbers that no saved rank draws.
        randomness.seed_everything(randomness.seed_of(self._rank, manifest["position"]["step"]))


def _reason(step: int, failure: Exception) -> str:
    return f"no checkpoint at step {step}: {failure}"


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.1f} MiB"
