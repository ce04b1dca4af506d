"""Checkpoints of a whole training: after a resume every rank goes on as if nothing had happened.

Rank 0 alone touches the volume, so one that only its node can reach is enough; the others are given what it read.
A checkpoint's folder holds `model.safetensors`, which is of use by itself, `optimizer.safetensors`,
`random.safetensors` (one tensor for each rank) and the manifest with everything that is no tensor.
"""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ddpjob_trainer import randomness
from ddpjob_trainer.ancestry import JobIdentity, NothingToResumeError, nothing_to_resume, older_folders, sign
from ddpjob_trainer.environment import Environment, MisuseError
from ddpjob_trainer.exchange import Exchange
from ddpjob_trainer.sampler import Position
from ddpjob_trainer.storage import DEFAULT_KEEP_LAST, CheckpointFolder, SupersededError
from ddpjob_trainer.tree import from_json, to_json

FORMAT: Final = 1
_MODEL: Final = "model"
_OPTIMIZER: Final = "optimizer"
_RANDOM: Final = "random"
_READABLE: Final = 0o644
_FILES: Final = (_MODEL, _OPTIMIZER, _RANDOM)

_Read = tuple[dict[str, Any], dict[str, torch.Tensor]]
"""The manifest and all tensors of a checkpoint, by file and name."""

_log = logging.getLogger(__name__)


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


class SaveError(RuntimeError):
    """Rank 0 could not write a checkpoint; raised on every rank."""


class Checkpoints:
    """Saves and resumes a training; all ranks call its methods together."""

    def __init__(
        self,
        folder: CheckpointFolder,
        exchange: Exchange,
        *,
        owner: JobIdentity | None = None,
        resume_from: str | None = None,
    ) -> None:
        """Args:
        folder: where rank 0 reads and writes; unused on the others.
        exchange: among the ranks of the training.
        owner: the job whose folder it is; None leaves it without a name.
        resume_from: name of the older job to continue while the folder holds no sound checkpoint.
        """
        self._folder = folder
        self._exchange = exchange
        self._owner = owner
        self._resume_from = resume_from

    def save(self, state: TrainingState, position: Position) -> None:
        """Save a checkpoint of this position.

        Raises:
            SaveError: rank 0 could not, or must not; no rank goes on as if there were a checkpoint.
        """
        generators = self._exchange.gather_bytes(randomness.capture())
        reason = self._write(state, position, generators) if dist.get_rank() == 0 else None
        reason = self._exchange.broadcast_json(reason)
        if reason is not None:
            raise SaveError(reason)

    def resume(self, state: TrainingState) -> Position | None:
        """Restore the newest sound checkpoint into the state, and every rank's random numbers.

        Returns:
            The position of the checkpoint, or None where there is none.

        Raises:
            MisfitError: the checkpoint is sound, but of another model or optimizer.
            NothingToResumeError: the older job that is to be continued has no sound checkpoint; on every rank.
        """
        found: _Read | None = None
        reason: str | None = None
        if dist.get_rank() == 0:
            try:
                found = self._read()
            except NothingToResumeError as nothing:
                reason = str(nothing)
        manifest, tensors = found or (None, {})
        manifest, reason = self._exchange.broadcast_json([manifest, reason])
        if reason is not None:
            raise NothingToResumeError(reason)
        if manifest is None:
            return None
        tensors = self._exchange.broadcast_tensors(tensors)
        _load(state, manifest, tensors)
        self._restore_random_numbers(manifest, tensors)
        return Position(**manifest["position"])

    def _write(self, state: TrainingState, position: Position, generators: list[bytes]) -> str | None:
        """Write a checkpoint; the reason where it could not be written."""
        tensors: dict[str, dict[str, torch.Tensor]] = {_MODEL: {}, _OPTIMIZER: {}}
        tensors[_RANDOM] = {
            str(rank): torch.frombuffer(bytearray(each), dtype=torch.uint8) for rank, each in enumerate(generators)
        }
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "worldSize": dist.get_world_size(),
            "position": asdict(position),
            "scheduler": None,
            "scaler": None,
        }

        def write(folder: Path) -> None:
            for name in _FILES:
                file = folder / f"{name}.safetensors"
                save_file(tensors[name], file)
                # It is written for its owner alone, while a trained model is for others to use.
                file.chmod(_READABLE)

        try:
            # The model's tensors keep their own names, so that its file can be loaded without this library.
            manifest[_MODEL] = {
                name: to_json(value, name, tensors[_MODEL]) for name, value in state.model.state_dict().items()
            }
            manifest[_OPTIMIZER] = to_json(state.optimizer.state_dict(), _OPTIMIZER, tensors[_OPTIMIZER])
            if state.scheduler is not None:
                manifest["scheduler"] = to_json(state.scheduler.state_dict(), "scheduler", tensors[_OPTIMIZER])
            if state.scaler is not None:
                manifest["scaler"] = to_json(state.scaler.state_dict(), "scaler", tensors[_OPTIMIZER])
            if self._owner is not None:
                sign(self._folder.path, self._owner)
            self._folder.save(position.step, manifest, write)
        except (OSError, SafetensorError, SupersededError, TypeError) as reason:
            return f"no checkpoint at step {position.step}: {reason}"
        return None

    def _read(self) -> _Read | None:
        found = _read_newest(self._folder)
        if found is not None or self._resume_from is None or self._owner is None:
            return found
        for folder in older_folders(self._folder.path, self._owner, self._resume_from):
            found = _read_newest(folder)
            if found is not None:
                return found
        raise nothing_to_resume(self._folder.path, self._owner, self._resume_from)

    def _restore_random_numbers(self, manifest: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        saved = tensors.get(f"{_RANDOM}/{dist.get_rank()}")
        if saved is not None:
            randomness.restore(bytes(saved.numpy()))
            return
        # The training has grown: a rank without a past draws what no saved rank does.
        randomness.seed_everything(hash((dist.get_rank(), manifest["position"]["step"])) % 2**63)


class MisfitError(ValueError):
    """A checkpoint belongs to another model or optimizer."""


def _read_newest(folder: CheckpointFolder) -> _Read | None:
    """Rank 0's manifest and tensors of the newest sound checkpoint in a folder."""
    for checkpoint in folder.newest():
        manifest = checkpoint.manifest
        if manifest.get("format") != FORMAT:
            _log.error("checkpoint %s has format %s, not %d", checkpoint.folder, manifest.get("format"), FORMAT)
            continue
        tensors: dict[str, torch.Tensor] = {}
        for name in _FILES:
            for key, tensor in load_file(checkpoint.folder / f"{name}.safetensors").items():
                tensors[f"{name}/{key}"] = tensor
        _log.info("resuming from %s", checkpoint.folder)
        return manifest, tensors
    return None


def checkpoints(
    environment: Environment, exchange: Exchange, path: str | None = None, keep_last: int | None = None
) -> Checkpoints | None:
    """The checkpoints of the job in this environment.

    Args:
        environment: of this process.
        exchange: among the ranks.
        path: folder for the checkpoints of jobs, the job's own are in `<path>/<uid>`, or in the path itself without an
            operator; None takes the operator's choice.
        keep_last: how many checkpoints stay; None takes the operator's choice, or 3.

    Returns:
        None where neither names a folder.

    Raises:
        MisuseError: an older job is to be continued, but nothing says where its checkpoints are or which job this is.
    """
    job = environment.job
    own = Path(path) / job.uid if path else Path(job.checkpoint_path) if job.checkpoint_path else None
    if job.resume_from is not None and (own is None or not job.uid):
        raise MisuseError("DDPJOB_RESUME_FROM needs DDPJOB_UID, and DDPJOB_CHECKPOINT_PATH or the program's own folder")
    if own is None:
        return None
    owner = JobIdentity(job.name, job.namespace, job.uid) if job.uid else None
    keep_last = keep_last or job.checkpoint_keep_last or DEFAULT_KEEP_LAST
    folder = CheckpointFolder(own, attempt=job.attempt, keep_last=keep_last)
    return Checkpoints(folder, exchange, owner=owner, resume_from=job.resume_from)


def _load(state: TrainingState, manifest: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    def part(name: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}

    try:
        model = part(_MODEL)
        state.model.load_state_dict({name: from_json(value, model) for name, value in manifest[_MODEL].items()})
        optimizer = part(_OPTIMIZER)
        state.optimizer.load_state_dict(from_json(manifest[_OPTIMIZER], optimizer))
        if state.scheduler is not None and manifest["scheduler"] is not None:
            state.scheduler.load_state_dict(from_json(manifest["scheduler"], optimizer))
        # Checkpoints of older versions have none.
        if state.scaler is not None and manifest.get("scaler"):
            state.scaler.load_state_dict(from_json(manifest["scaler"], optimizer))
    except (RuntimeError, ValueError, KeyError) as reason:
        raise MisfitError(
            "the checkpoint does not fit this model and optimizer: give another checkpoint folder, or the program "
            f"that it was saved by ({reason})"
        ) from reason
