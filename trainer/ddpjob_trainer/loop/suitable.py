"""What DistributedDataParallel cannot train together is refused, with what to do instead."""

from collections.abc import Iterator

import torch
from torch import nn

from ddpjob_trainer.process.environment import MisuseError

_WRAPPERS = {
    "DistributedDataParallel": "pass the model itself, which is wrapped here",
    "DataParallel": "pass the model itself, which is wrapped here",
    "FullyShardedDataParallel": "pass the model itself; sharded training needs a loop of its own",
    "FSDPModule": "pass the model itself; sharded training needs a loop of its own",
}


def check_model(model: nn.Module) -> None:
    """Check that DistributedDataParallel can train a model.

    Raises:
        MisuseError: it cannot.
    """
    for name, module in model.named_modules():
        # By name: importing them takes long.
        for base in type(module).__mro__:
            if base.__name__ in _WRAPPERS and base.__module__.startswith("torch."):
                which = f"the model's {name!r}" if name else "the model"
                raise MisuseError(f"{which} is already a {base.__name__}: {_WRAPPERS[base.__name__]}")
    for name, parameter in model.named_parameters():
        if type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor":
            raise MisuseError(
                f"the model's parameter {name!r} is a DTensor, a part of a tensor: each rank needs the whole model, "
                "so train it without parallelize_module and fully_shard"
            )
        if parameter.is_meta:
            raise MisuseError(f"the model's parameter {name!r} has no values (device meta): initialise or load it")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise MisuseError("no parameter of the model requires a gradient: there is nothing to train")


class Seen:
    """The parameters whose gradients are averaged over the ranks; any other would become different on each rank."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Args:
        model: as it is when it is wrapped.
        optimizer: of its parameters.

        Raises:
            MisuseError: the optimizer changes others.
        """
        ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
        self._names = {each: name for name, each in model.named_parameters()}
        # By identity, which lasts as long as the names do: torch takes longer for a tensor's hash.
        self._seen = {id(each) for each, name in self._names.items() if each.requires_grad and name not in ignored}
        self._optimizer = optimizer
        self._refuse([each for each in self._others() if each.requires_grad])

    def check(self) -> None:
        """Check between two steps that no other parameter has a gradient.

        Raises:
            MisuseError: one has, because it was unfrozen, or given to the optimizer, after the training began.
        """
        self._refuse([each for each in self._others() if each.grad is not None])

    def _others(self) -> Iterator[torch.Tensor]:
        for group in self._optimizer.param_groups:
            yield from (each for each in group["params"] if id(each) not in self._seen)

    def _refuse(self, others: list[torch.Tensor]) -> None:
        if not others:
            return
        named = [self._names[each] for each in others if each in self._names]
        if named:
            raise MisuseError(
                f"the gradient of {named[0]!r} is not averaged over the ranks, because it did not require one when the "
                "training began: its values would differ per rank. Unfreeze it in a second training with a name"
            )
        raise MisuseError(
            f"the optimizer changes {len(others)} parameter(s) that the model does not have, the first of shape "
            f"{tuple(others[0].shape)}: their gradients are not averaged over the ranks, and they would differ per "
            "rank. Make what has them, such as a criterion, a module of the model"
        )
