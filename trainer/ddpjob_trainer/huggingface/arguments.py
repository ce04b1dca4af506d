"""What a Trainer's TrainingArguments ask for that this library does not do as they say: refused by name.

Everything else is the Trainer's own business and stays with it, including when to save.
"""

import sys
from collections.abc import Mapping
from typing import Final

from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

_TIMEOUT: Final = TrainingArguments.ddp_timeout
_SHARDS: Final = "only DistributedDataParallel is supported here, whose ranks all hold the whole model"

_REFUSED: Final[Mapping[str, str]] = {
    "auto_find_batch_size": "each process would restart with a batch size of its own: set per_device_train_batch_size",
    "deepspeed": _SHARDS,
    "enable_jit_checkpoint": "this library saves on SIGTERM, on all ranks after the same step: leave it out",
    "fsdp": _SHARDS,
    "parallelism_config": _SHARDS,
    "push_to_hub": "checkpoints stay with the job: call trainer.push_to_hub() after training",
    "resume_from_checkpoint": "leave it out: the job's newest checkpoint is used, or spec.checkpoint.resumeFrom's",
    "save_on_each_node": "rank 0 alone writes checkpoints, and the others receive what it has read: leave it out",
    "save_only_model": "a resume needs the optimizer as well: leave it out; model.safetensors can be loaded by itself",
}
"""Arguments that must not be set, and what to do instead."""


def check(trainer: Trainer, group: Group, *, save_every: int | None, saves: bool) -> None:
    """Refuse what would not be as a Trainer's arguments say.

    Args:
        trainer: not trained yet.
        group: the processes of the training.
        save_every: epochs between two checkpoints, if the caller says so.
        saves: whether there is a place for checkpoints.

    Raises:
        MisuseError: names the argument, and what to do.
    """
    args = trainer.args
    for name, instead in _REFUSED.items():
        if getattr(args, name, None):
            raise MisuseError(f"TrainingArguments.{name} is not supported: {instead}")
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise MisuseError(f"accelerate's environment asks for FSDP or DeepSpeed: {_SHARDS}")
    _check_group(args, group)
    strategy = SaveStrategy(args.save_strategy)
    if save_every is not None and strategy is not SaveStrategy.NO:
        raise MisuseError(
            f"save_every={save_every} and TrainingArguments.save_strategy={strategy.value!r} both say when to save: "
            "leave out save_every, or set save_strategy='no'"
        )
    best = "save_strategy='best'" if strategy is SaveStrategy.BEST else ""
    needs = "load_best_model_at_end" if args.load_best_model_at_end else best
    if needs and not saves:
        raise MisuseError(
            f"TrainingArguments.{needs} needs a place to save: set spec.checkpoint, or pass checkpoint_dir"
        )


def _check_group(args: TrainingArguments, group: Group) -> None:
    if args.world_size != group.world_size:
        raise MisuseError(
            f"the Trainer sees {args.world_size} process(es), but the group has {group.world_size}, so that each would "
            "train its own model: create TrainingArguments and Trainer within process_group"
        )
    if args.n_gpu > 1:
        raise MisuseError(
            f"this process uses {args.n_gpu} GPUs: start one process per GPU, or limit CUDA_VISIBLE_DEVICES"
        )
    if args.device.type != group.device.type:
        raise MisuseError(
            f"TrainingArguments.use_cpu={args.use_cpu} trains on {args.device.type}, but this rank's device is "
            f"{group.device.type}: set use_cpu={group.device.type == 'cpu'}"
        )
    if args.ddp_backend not in (None, group.backend.value):
        raise MisuseError(
            f"TrainingArguments.ddp_backend={args.ddp_backend!r}, but the process group already uses "
            f"{group.backend.value}: leave it out, and set spec.backend"
        )
    if args.ddp_timeout != _TIMEOUT:
        raise MisuseError(
            f"TrainingArguments.ddp_timeout={args.ddp_timeout} comes too late, since the process group exists: leave "
            "it out, and pass process_group(timeout=...)"
        )


def keep_last(args: TrainingArguments) -> int | None:
    """How many checkpoints `save_total_limit` keeps; None leaves it to the job."""
    limit = args.save_total_limit
    if limit is None:
        return None
    # As the Trainer reads it: no limit.
    return limit if limit > 0 else sys.maxsize
