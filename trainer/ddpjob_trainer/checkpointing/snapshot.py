"""Everything that a checkpoint holds, copied between two steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from ddpjob_trainer.checkpointing.forms import View, is_plain, refuse_shared, strides_of, view_of
from ddpjob_trainer.checkpointing.host_copies import HostCopies, LaterCopy
from ddpjob_trainer.checkpointing.step_gate import Place, place
from ddpjob_trainer.checkpointing.tensor_file import Elsewhere
from ddpjob_trainer.checkpointing.tree import Copy, to_json
from ddpjob_trainer.data.position import Position

FORMAT: Final = 1
MODEL: Final = "model"
OPTIMIZER: Final = "optimizer"
RANDOM: Final = "random"
FILES: Final = (MODEL, OPTIMIZER, RANDOM)

STRIDES: Final = "parameterStrides"
"""Of the optimizer's parameters that are not contiguous, by number."""
VERSIONS: Final = "moduleVersions"
"""Of the model's modules whose state has a version other than 1, by name: torch converts the state of older ones."""
_COMPILED: Final = "_orig_mod"
"""Where `torch.compile` keeps the module that it was given; checkpoints have the same names without it."""


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
    weights: Stateful | None = None
    """What sums are divided by before the weight of a step is known."""
    batch: Stateful | None = None
    """What the global batch follows from."""
    owners: Sequence[int] | None = None
    """Rank that has the optimizer's state of each parameter, by number; None: all ranks have all."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint to be written, except for the random numbers, which come from each rank."""

    step: int
    manifest: dict[str, Any]
    tensors: Mapping[str, Mapping[str, torch.Tensor | Elsewhere]]
    """By file and name: copies, the training's own, or those of other ranks."""
    remaining: Sequence[LaterCopy]
    """Copies that have not been made yet."""

    def with_random_numbers(self, generators: list[bytes]) -> dict[str, Mapping[str, torch.Tensor | Elsewhere]]:
        """All tensors by file and name, including every rank's generators."""
        random = {
            str(rank): torch.frombuffer(bytearray(each), dtype=torch.uint8) for rank, each in enumerate(generators)
        }
        return {**self.tensors, RANDOM: random}


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

            return _once(copy)

        found = _taken(state, position, {name: copying(copies) for name, copies in self._copies.items()})
        return replace(found, remaining=remaining)

    def reservation(self, state: TrainingState) -> Callable[[], int]:
        """Work for another thread that prepares the memory for snapshots of such a state, and says how many bytes."""
        _, tensors = _collect(state, dict.fromkeys(self._copies, _itself))

        def reserve() -> int:
            total = 0
            for file, copies in self._copies.items():
                for name, tensor in {view_of(each): (name, each) for name, each in tensors[file].items()}.values():
                    copies.reserve(name, tensor)
                    total += tensor.nbytes
            return total

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


def without_copies(state: TrainingState, position: Position) -> Snapshot:
    """A snapshot of the training's own tensors, valid until one of them changes.

    Raises:
        TypeError: the state holds something that a checkpoint cannot.
    """
    return _taken(state, position, dict.fromkeys((MODEL, OPTIMIZER), _itself))


def check(state: TrainingState) -> None:
    """Check that a checkpoint can hold a state.

    Raises:
        TypeError: it holds something that a checkpoint cannot; the message names it.
    """
    _collect(state, dict.fromkeys((MODEL, OPTIMIZER), _itself))


def uncompiled(name: str) -> str:
    """The name of a tensor or a module as it is without `torch.compile`."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def uncompiled_names(state: Mapping[str, Any]) -> dict[str, str]:
    """The names in a model's state by what they are without `torch.compile`."""
    plain = {uncompiled(name): name for name in state}
    return plain if len(plain) == len(state) else {name: name for name in state}


def parameters_of(optimizer: object) -> dict[int, torch.Tensor]:
    """An optimizer's parameters by the numbers that they have in its state."""
    groups = getattr(optimizer, "param_groups", ())
    unique = {id(each): each for group in groups for each in group["params"]}
    return dict(enumerate(unique.values()))


def state_of(part: Stateful, what: str) -> dict[str, Any]:
    """The state of a part of a training.

    Raises:
        TypeError: it gives none, as a ZeroRedundancyOptimizer before its state is collected on one rank.
    """
    try:
        return part.state_dict()
    except Exception as reason:
        raise TypeError(f"{what}: {type(part).__name__}.state_dict() failed: {reason}") from reason


def _taken(state: TrainingState, position: Position, copy: dict[str, Copy]) -> Snapshot:
    manifest, tensors = _collect(state, copy)
    manifest |= {"format": FORMAT, "worldSize": dist.get_world_size(), "position": position._asdict()}
    return Snapshot(position.step, manifest, tensors, ())


def _itself(_: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _once(copy: Copy) -> Copy:
    """Copies each view of the same memory once: tied weights have several names."""
    made = dict[View, torch.Tensor]()

    def copy_once(name: str, tensor: torch.Tensor) -> torch.Tensor:
        view = view_of(tensor)
        if view not in made:
            made[view] = copy(name, tensor)
        return made[view]

    return copy_once


def _collect(state: TrainingState, copy: dict[str, Copy]) -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]]]:
    """What the manifest holds of the state, and the state's tensors by file and name."""
    tensors: dict[str, dict[str, torch.Tensor]] = {MODEL: {}, OPTIMIZER: {}}
    own = list[tuple[str, torch.Tensor]]()
    shared = dict[View, str]()

    def copy_of_optimizer(name: str, tensor: torch.Tensor) -> torch.Tensor:
        own.append((name, tensor))
        return copy[OPTIMIZER](name, tensor)

    def of_rest(part: Stateful | None, name: str) -> Any:  # noqa: ANN401 anything JSON can hold
        if part is None:
            return None
        return to_json(state_of(part, name), name, tensors[OPTIMIZER], copy[OPTIMIZER])

    # The model's tensors keep their own names, so that its file can be loaded without this library.
    whole = state_of(state.model, MODEL)
    model = {
        plain: to_json(whole[name], plain, tensors[MODEL], copy[MODEL])
        for plain, name in uncompiled_names(whole).items()
    }
    whole_optimizer = state_of(state.optimizer, OPTIMIZER)
    optimizer = to_json(whole_optimizer, OPTIMIZER, tensors[OPTIMIZER], copy_of_optimizer, shared)
    refuse_shared(own, [(name, each) for name, each in whole.items() if isinstance(each, torch.Tensor)])
    manifest = {
        MODEL: model,
        VERSIONS: _versions(whole),
        OPTIMIZER: optimizer,
        STRIDES: _strides(parameters_of(state.optimizer)),
        "scheduler": of_rest(state.scheduler, "scheduler"),
        "scaler": of_rest(state.scaler, "scaler"),
        "earlyStop": of_rest(state.early_stop, "earlyStop"),
        "others": of_rest(state.others, "others"),
        "buckets": of_rest(state.buckets, "buckets"),
        "weights": of_rest(state.weights, "weights"),
        "globalBatch": of_rest(state.batch, "globalBatch"),
    }
    return manifest, tensors


def _versions(model: Mapping[str, Any]) -> dict[str, int] | None:
    """None if the state has none: it was not made by torch."""
    metadata = getattr(model, "_metadata", None)
    if metadata is None:
        return None
    found = {uncompiled(name): each.get("version", 1) for name, each in metadata.items()}
    return {name: version for name, version in found.items() if isinstance(version, int) and version != 1}


def _strides(parameters: Mapping[int, torch.Tensor]) -> dict[str, list[int]]:
    found = {str(index): strides_of(each) for index, each in parameters.items() if is_plain(each)}
    return {index: strides for index, strides in found.items() if strides is not None}
