"""All that a checkpoint holds, copied at one moment between two steps."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from ddpjob_trainer.checkpointing.host_copies import HostCopies, LaterCopy
from ddpjob_trainer.checkpointing.step_gate import Place, place
from ddpjob_trainer.checkpointing.tree import Copy, to_json
from ddpjob_trainer.data.position import Position

FORMAT: Final = 1
MODEL: Final = "model"
OPTIMIZER: Final = "optimizer"
RANDOM: Final = "random"
FILES: Final = (MODEL, OPTIMIZER, RANDOM)


class Stateful(Protocol):
    """A model, an optimizer or a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Take over a state."""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What a checkpoint saves and restores in place."""

    model: Stateful
    optimizer: Stateful
    scheduler: Stateful | None = None
    scaler: Stateful | None = None
    """Of the loss, for float16."""
    early_stop: Stateful | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint that is still to be written, but for the random numbers, which each rank has of its own."""

    step: int
    manifest: dict[str, Any]
    copied: dict[str, dict[str, torch.Tensor]]
    """By file and name."""
    remaining: Sequence[LaterCopy]
    """Copies that are still to be made."""

    def with_random_numbers(self, generators: list[bytes]) -> dict[str, dict[str, torch.Tensor]]:
        """All tensors by file and name, given every rank's generators."""
        random = {
            str(rank): torch.frombuffer(bytearray(each), dtype=torch.uint8) for rank, each in enumerate(generators)
        }
        return {**self.copied, RANDOM: random}


class Snapshots:
    """Takes snapshots, each into the memory of the one before: a new one makes the older unsound."""

    def __init__(self) -> None:
        self._copies = {name: HostCopies() for name in (MODEL, OPTIMIZER)}

    def take(self, state: TrainingState, position: Position, later: frozenset[Place] = frozenset()) -> Snapshot:
        """Copy a training's state as it is now.

        Args:
            state: of the training.
            position: of the training.
            later: where no tensor changes before `copy_rest` has returned, which alone copies them.

        Raises:
            TypeError: the state holds what a checkpoint cannot.
        """
        remaining = list[LaterCopy]()

        def copying(copies: HostCopies) -> Copy:
            def copy(name: str, tensor: torch.Tensor) -> torch.Tensor:
                if place(tensor) not in later:
                    return copies.copy(name, tensor)
                remaining.append(copies.copy_later(name, tensor))
                return remaining[-1].buffer

            return copy

        manifest, tensors = _collect(state, {name: copying(copies) for name, copies in self._copies.items()})
        manifest |= {"format": FORMAT, "worldSize": dist.get_world_size(), "position": asdict(position)}
        return Snapshot(position.step, manifest, tensors, remaining)

    def reservation(self, state: TrainingState) -> Callable[[], None]:
        """Work that makes the memory for snapshots of such a state ready, for another thread."""
        _, tensors = _collect(state, dict.fromkeys(self._copies, lambda _, tensor: tensor))

        def reserve() -> None:
            for file, copies in self._copies.items():
                for name, tensor in tensors[file].items():
                    copies.reserve(name, tensor)

        return reserve

    def copy_rest(self, snapshot: Snapshot) -> None:
        """Make the copies that the last snapshot lacks, in any thread.

        Raises:
            ChangedError: a tensor that was to be copied later has changed.
        """
        for copy in snapshot.remaining:
            copy.make()
        for copy in snapshot.remaining:
            copy.check()

    def wait(self) -> None:
        """Return when what the last snapshot has of GPUs is sound; any thread may wait."""
        for copies in self._copies.values():
            copies.wait()


def _collect(state: TrainingState, copy: dict[str, Copy]) -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]]]:
    """What the manifest says of the state, and the state's tensors by file and name."""
    tensors: dict[str, dict[str, torch.Tensor]] = {MODEL: {}, OPTIMIZER: {}}

    def of_optimizer(part: Stateful | None, name: str) -> Any:  # noqa: ANN401 anything JSON can hold
        if part is None:
            return None
        return to_json(part.state_dict(), name, tensors[OPTIMIZER], copy[OPTIMIZER])

    # The model's tensors keep their own names, so that its file can be loaded without this library.
    model = {
        name: to_json(value, name, tensors[MODEL], copy[MODEL]) for name, value in state.model.state_dict().items()
    }
    manifest = {
        MODEL: model,
        OPTIMIZER: of_optimizer(state.optimizer, OPTIMIZER),
        "scheduler": of_optimizer(state.scheduler, "scheduler"),
        "scaler": of_optimizer(state.scaler, "scaler"),
        "earlyStop": of_optimizer(state.early_stop, "earlyStop"),
    }
    return manifest, tensors
