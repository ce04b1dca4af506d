"""An optimizer whose state is divided among the ranks, parameter by parameter (Rajbhandari et al., ZeRO-1, SC 2020).

Between two steps the optimizer is that of the program, with all its groups and parameters: clipping, schedulers and
checks see what they always see. Only during a step its groups have no parameters but this rank's own; each rank then
gives the others what it has changed. Other than torch's ZeroRedundancyOptimizer this takes an optimizer that exists,
and its state_dict has this rank's part under the numbers of all parameters, so that no rank has to collect the rest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
import torch.distributed as dist
from torch.optim import LBFGS, Optimizer

from ddpjob_trainer.process.environment import MisuseError

_AT_ONCE: Final = 25 << 20
"""Bytes of parameters that are sent at once; they are copied for it."""


class Sharding:
    """Which rank has the state of which parameter, the same on all ranks."""

    def __init__(self, optimizer: Optimizer, *, rank: int, world_size: int) -> None:
        """Args:
        optimizer: that computes each parameter by itself; what it already has of others' parameters is dropped.
        rank: of this process.
        world_size: number of ranks.

        Raises:
            MisuseError: it cannot be divided.
        """
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, LBFGS) or hasattr(optimizer, "join_hook"):
            raise MisuseError(
                f"shard_optimizer cannot divide a {type(optimizer).__name__}: give it an optimizer of torch.optim that "
                "computes each parameter by itself, such as AdamW"
            )
        self._optimizer = optimizer
        self._rank = rank
        self._loads = [0] * world_size
        self._owners: dict[torch.Tensor, int] = {}
        self._assign()
        for parameter, owner in self._owners.items():
            if owner != rank:
                optimizer.state.pop(parameter, None)

    def owners(self) -> list[int]:
        """The rank that has the state of each parameter, by its number in the optimizer's state."""
        self._assign()
        return list(self._owners.values())

    @contextmanager
    def own(self) -> Iterator[None]:
        """The optimizer changes this rank's parameters in the body; afterwards all ranks have all changes."""
        self._assign()
        groups = self._optimizer.param_groups
        whole = [group["params"] for group in groups]
        try:
            for group in groups:
                group["params"] = [each for each in group["params"] if self._owners[each] == self._rank]
            yield
        finally:
            for group, parameters in zip(groups, whole, strict=True):
                group["params"] = parameters
        for owner in range(len(self._loads)):
            changed = [each.detach() for each, by in self._owners.items() if by == owner and each.requires_grad]
            if changed and len(self._loads) > 1:
                # As DistributedDataParallel gives all ranks the first weights.
                dist._broadcast_coalesced(dist.group.WORLD, changed, _AT_ONCE, owner)  # noqa: SLF001

    def _assign(self) -> None:
        """Give each parameter that has no rank to the one that has least, the largest first."""
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        if len(parameters) == len(self._owners):
            return
        unknown = [each for each in dict.fromkeys(parameters) if each not in self._owners]
        chosen = dict[torch.Tensor, int]()
        for each in sorted(unknown, key=lambda parameter: -parameter.nbytes):
            chosen[each] = self._loads.index(min(self._loads))
            self._loads[chosen[each]] += each.nbytes
        # In the order of the optimizer's numbers.
        self._owners = {each: self._owners.get(each, chosen.get(each, 0)) for each in dict.fromkeys(parameters)}
