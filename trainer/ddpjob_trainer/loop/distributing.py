"""A model as one that all ranks train together, also after one of them was replaced."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel, distributed

from ddpjob_trainer.loop.buckets import Buckets
from ddpjob_trainer.process.environment import MisuseError

if TYPE_CHECKING:
    from ddpjob_trainer.loop.optimization import Optimization

_POWER_SGD_AFTER: Final = 10
"""Steps before gradients are approximated: at first they change too quickly for it (arXiv:1905.13727)."""
_EXCHANGES: Final = ("_verify_param_shape_across_processes", "_sync_module_states")
"""What DistributedDataParallel calls when it is made: they give all ranks the weights of rank 0."""


def distribute(
    module: nn.Module,
    device: torch.device,
    how: "Optimization",
    buckets: Buckets | None = None,
    *,
    again: DistributedDataParallel | None = None,
    alone: bool = False,
) -> DistributedDataParallel:
    """A model on its device as one that all ranks train together.

    Args:
        module: the model.
        device: of this rank.
        how: a step is computed.
        buckets: the order in which gradients are exchanged, where checkpoints keep it.
        again: what was made of it for a group that was left: it becomes the result.
        alone: exchange nothing: the ranks get the same weights in another way.

    Raises:
        MisuseError: this torch cannot compress gradients this way for the backend, or not synchronise BatchNorm.
    """
    if how.sync_batch_norm:
        if device.type == "cpu":
            raise MisuseError(
                "sync_batch_norm: torch's SyncBatchNorm computes on GPUs only, and this rank uses the CPU"
            )
        # Layers are replaced within the model; parameters and buffers stay the same.
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    options: dict[str, Any] = {
        "device_ids": [device] if device.type == "cuda" else None,
        "static_graph": how.static_graph,
        "find_unused_parameters": how.find_unused_parameters,
        "gradient_as_bucket_view": how.gradient_as_bucket_view,
        "bucket_cap_mb": how.bucket_cap_mb,
        "broadcast_buffers": how.broadcast_buffers,
    }
    if alone:
        with _no_exchange() as more:
            model = _made(again, module, {**options, **more})
    else:
        model = _made(again, module, options)
    if buckets is not None:
        buckets.attach(model)
    if how.compression is not None:
        _compress(model, how)
    return model


def can_be_alone() -> bool:
    """Whether this torch lets `distribute` exchange nothing."""
    return _has_choice() or all(hasattr(distributed, name) for name in _EXCHANGES)


def has_other_hooks(model: DistributedDataParallel, how: "Optimization") -> bool:
    """Whether the program exchanges the gradients in a way of its own, which would be lost."""
    hooks: list[Any] = getattr(model, "_comm_hooks", [])
    return len(hooks) != (how.compression is not None)


def leave(model: DistributedDataParallel) -> None:
    """Let go of the group: the hooks would exchange gradients in it for as long as anything refers to the model."""
    if hasattr(model, "reducer"):
        model.reducer._remove_autograd_hooks()  # noqa: SLF001 torch has no public way
    for name in ("reducer", "logger", "process_group"):
        vars(model).pop(name, None)


def _made(again: DistributedDataParallel | None, module: nn.Module, options: dict[str, Any]) -> DistributedDataParallel:
    if again is None:
        return DistributedDataParallel(module, **options)
    # What the program has attached to the model is about to be forgotten.
    kept = {name: each for name, each in vars(again).items() if "_hooks" in name and isinstance(each, dict)}
    training = again.training
    DistributedDataParallel.__init__(again, module, **options)
    vars(again).update(kept, training=training)
    return again


def _has_choice() -> bool:
    return "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters


@contextmanager
def _no_exchange() -> Iterator[dict[str, Any]]:
    """In the body, with these options, DistributedDataParallel is made without an exchange."""
    if _has_choice():
        yield {"init_sync": False}
        return
    before = {name: getattr(distributed, name) for name in _EXCHANGES}
    for name in _EXCHANGES:
        setattr(distributed, name, lambda *_, **__: None)
    try:
        yield {}
    finally:
        for name, each in before.items():
            setattr(distributed, name, each)


def _compress(model: DistributedDataParallel, how: "Optimization") -> None:
    # Slow to import, so only where it is used; some versions of torch emit warnings about themselves.
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # noqa: PLC0415

    try:
        match how.compression:
            case "fp16":
                model.register_comm_hook(None, default_hooks.fp16_compress_hook)
            case "bf16":
                model.register_comm_hook(None, default_hooks.bf16_compress_hook)
            case "powersgd":
                state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=_POWER_SGD_AFTER)
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    except TypeError as reason:
        raise MisuseError(
            f"torch {torch.__version__} has no compression={how.compression} for the backend {dist.get_backend()}: "
            f"choose another compression ({reason})"
        ) from reason
