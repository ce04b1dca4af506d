"""What a checkpoint holds of a Trainer besides its model and optimizer, and how the Trainer continues from one."""

import dataclasses
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_model
from transformers import Trainer, TrainerState
from transformers.trainer_callback import ExportableState

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError

# The names that transformers looks for in a folder to resume from.
_WEIGHTS: Final = "model.safetensors"
_STATE: Final = "trainer_state.json"

_log = logging.getLogger(__name__)


class _Kept:
    """Keeps a state until its owner exists: the Trainer creates optimizer and scheduler when it starts."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.state: dict[str, Any] = state or {}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """How far a training has come through its data."""

    number: int = 0
    """Passes that are complete."""
    steps: int = 0
    """Steps of the current one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Resumed:
    """A checkpoint whose model has been loaded."""

    position: Position
    optimizer: Mapping[str, Any]
    scheduler: Mapping[str, Any]
    trainer_state: str
    """transformers' TrainerState as JSON."""
    data: Pass
    """Only counts for data of unknown length."""
    best: int | None
    """Step of the best evaluation whose model was saved."""
    generators: bytes
    """This rank's random numbers."""

    def write(self, model: torch.nn.Module, folder: Path) -> None:
        """Write what the Trainer reads to resume: its state and, although they are loaded, the weights."""
        (folder / _STATE).write_text(self.trainer_state, encoding="utf-8")
        save_model(model, str(folder / _WEIGHTS))


def resume(trainer: Trainer, saves: Checkpoints, world_size: int) -> Resumed | None:
    """Load the newest checkpoint's model, and return the rest; None if there is no checkpoint.

    Raises:
        MisuseError: another number of processes has saved it.
        MisfitError: it belongs to another model.
        ResumeError: there are checkpoints, but none can be used.
    """
    optimizer, rest = _Kept(), _Kept()
    position = saves.resume(TrainingState(trainer.model, optimizer, rest, trainer.accelerator.scaler))
    if position is None:
        return None
    saved_by = rest.state["world_size"]
    if saved_by != world_size:
        raise MisuseError(
            f"the checkpoint was saved by {saved_by} processes, and transformers' Trainer, which counts its data in "
            f"steps of all of them, cannot continue with {world_size}: start {saved_by}, or use another folder"
        )
    _log.info("resumed in epoch %d after step %d", position.epoch + 1, position.step)
    # Older checkpoints do not have the pass: there was only one.
    data = Pass(*rest.state.get("pass", (0, position.step)))
    generators, kept = randomness.capture(), rest.state
    best = kept["best"] if "best" in kept else json.loads(kept["trainer"])["best_global_step"]
    return Resumed(position, optimizer.state, kept["scheduler"], kept["trainer"], data, best, generators)


def state_of(trainer: Trainer, data: Pass, world_size: int, best: int | None) -> TrainingState:
    """What a checkpoint of a Trainer holds."""
    callbacks = [*trainer.callback_handler.callbacks, trainer.control]
    exported = TrainerState(stateful_callbacks=[each for each in callbacks if isinstance(each, ExportableState)])
    trainer.state.stateful_callbacks = exported.stateful_callbacks
    rest = {
        "scheduler": trainer.lr_scheduler.state_dict(),
        "trainer": json.dumps(dataclasses.asdict(trainer.state)),
        "world_size": world_size,
        "pass": [data.number, data.steps],
        "best": best,
    }
    return TrainingState(trainer.model, trainer.optimizer, _Kept(rest), trainer.accelerator.scaler)
