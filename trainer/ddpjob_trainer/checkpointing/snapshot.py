"""Everything that a checkpoint holds, copied between two steps."""

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
        """Restore a state."""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What a checkpoint saves and restores in place."""

    model: Stateful
    optimizer: Stateful
    scheduler: Stateful | None = None
    scaler: Stateful | None = None
    """Scale of the loss, for float16."""
    early_stop: Stateful | None = None
    others: Stateful | None = None
    """What a loop of one's own keeps as well."""
    buckets: Stateful | None = None
    """How gradients are exchanged: without it the last digits of the first step after a resume may differ."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint to be written, except for the random numbers, which come from each rank."""

    step: int
    manifest: dict[str, Any]
    copied: dict[str, dict[str, torch.Tensor]]
    """By file and name."""
    remaining: Sequence[LaterCopy]
    """Copies that have not been made yet."""

    def with_random_numbers(self, generators: list[bytes]) -> dict[str, dict[str, torch.Tensor]]:
        """All tensors by file and name, including every rank's generators."""
        random = {
            str(rank): torch.frombuffer(bytearray(each), dtype=torch.uint8) for rank, each in enumerate(generators)
        }
        return {**self.copied, RANDOM: random}


class Snapshots:
    """Takes snapshots, each into the memory of the previous one, which becomes invalid."""

    def __init__(self) -> None:
        self._copies = {name: HostCopies() for name in (MODEL, OPTIMIZER)}

    def take(self, state: TrainingState, position: Position, later: frozenset[Place] = frozenset()) -> Snapshot:
        """Copy a training's state as it is now.

        Args:
            state: of the training.
            position: of the training.
            later: places of tensors that do not change before `copy_rest` has copied them.

        Raises:
            TypeError: the state holds something that a checkpoint cannot.
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
        """Work for another thread that prepares the memory for snapshots of such a state."""
        _, tensors = _collect(state, dict.fromkeys(self._copies, lambda _, tensor: tensor))

        def reserve() -> None:
            for file, copies in self._copies.items():
                for name, tensor in tensors[file].items():
                    copies.reserve(name, tensor)

        return reserve

    def copy_rest(self, snapshot: Snapshot) -> None:
        """Make the remaining copies of the last snapshot; may be called in any thread.

        Raises:
            ChangedError: a tensor changed before it was copied.
        """
        for copy in snapshot.remaining:
            copy.make()
        for copy in snapshot.remaining:
            copy.check()

    def wait(self) -> None:
        """Wait until the copies from GPUs are complete; may be called in any thread."""
        for copies in self._copies.values():
            copies.wait()


def _collect(state: TrainingState, copy: dict[str, Copy]) -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]]]:
    """What the manifest holds of the state, and the state's tensors by file and name."""
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
        "others": of_optimizer(state.others, "others"),
        "buckets": of_optimizer(state.buckets, "buckets"),
    }
    return manifest, tensors
