"""The model of a checkpoint by itself, without the training that saved it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from itertools import chain
from typing import Any, Final

from ddpjob_trainer.checkpointing.reading import Opened, distribute, forms_of, open_step
from ddpjob_trainer.checkpointing.restoring import Restoring
from ddpjob_trainer.checkpointing.snapshot import MODEL, OPTIMIZER, STRIDES, VERSIONS, Stateful, TrainingState
from ddpjob_trainer.checkpointing.storage import ResumeError
from ddpjob_trainer.checkpointing.store import CheckpointStore
from ddpjob_trainer.checkpointing.tree import from_json
from ddpjob_trainer.process.exchange import Exchange, StreamError
from ddpjob_trainer.process.patience import wait_for_first

HISTORY: Final = "history"
"""Where the state of a training's evaluations says which was the best one."""


def load_best(
    stores: Iterable[CheckpointStore], exchange: Exchange, model: Stateful, *, first: bool, step: int | None = None
) -> int | None:
    """Load the model as it was at the best evaluation that the newest checkpoint knows of; all ranks together.

    Args:
        stores: of the checkpoints, those of the job first, and then of the one that it continues; only rank 0 asks.
        exchange: between the ranks.
        model: receives its state.
        first: whether this is rank 0, which reads.
        step: of the checkpoint, for a training that knows it.

    Returns:
        The step of that checkpoint, or None if no evaluation was the best, or there is no checkpoint.

    Raises:
        MisfitError: the checkpoint belongs to another model.
        ResumeError: it is not there, or cannot be read; on every rank.
    """
    opened, reason = None, None
    if first:
        try:
            opened, step = _open(list(stores), step)
        except (ResumeError, OSError) as unusable:
            reason = str(unusable)
    wait_for_first()
    with nullcontext() if opened is None else closing(opened):
        found = None if opened is None else [{key: opened.manifest.get(key) for key in (MODEL, VERSIONS)}, opened.forms]
        found, step, reason = exchange.broadcast_json([found, step, reason])
        if reason is not None:
            raise ResumeError(reason)
        if found is None:
            return None
        manifest = {**found[0], OPTIMIZER: {"$items": []}, STRIDES: {}}
        forms = {name: form for name, form in forms_of(found[1]).items() if name[0] == MODEL}
        restoring = Restoring(TrainingState(model, _Nothing()), manifest, forms)
        try:
            distribute(exchange, forms, opened, restoring.target)
        except StreamError as unreadable:
            raise ResumeError(f"the checkpoint cannot be read to its end: {unreadable}") from unreadable
        restoring.finish()
    return None if step is None else int(step)


def _open(stores: Sequence[CheckpointStore], step: int | None) -> tuple[Opened | None, int | None]:
    if step is None:
        newest = next(chain.from_iterable(store.newest() for store in stores), None)
        step = None if newest is None else _best_step(newest.manifest)
    if step is None:
        return None, None
    # A job that continues another one does not have what that one had kept.
    for store in stores:
        opened = open_step(store, step)
        if opened is not None:
            return opened, step
    raise ResumeError(f"the checkpoint of the best evaluation, at step {step}, is not in {stores[0]}, or not intact")


def _best_step(manifest: Mapping[str, Any]) -> int | None:
    if manifest.get("earlyStop") is None:
        return None
    evaluations = from_json(manifest["earlyStop"], {})
    if HISTORY not in evaluations:
        # Of an older version.
        step = evaluations.get("best_step")
    else:
        best = evaluations[HISTORY]["best"]
        step = None if best is None else best["step"]
    return None if step is None else int(step)


class _Nothing:
    """Stands for an optimizer."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass
