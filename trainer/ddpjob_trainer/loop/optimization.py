"""One step of the optimizer: mixed precision, gradient accumulation, clipping, compressed exchange."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpjob_trainer.loop.batch_policy import BatchPolicy
from ddpjob_trainer.loop.buckets import Buckets
from ddpjob_trainer.loop.choice import one_of
from ddpjob_trainer.loop.distributing import distribute, leave
from ddpjob_trainer.loop.finite import Finite, values_of
from ddpjob_trainer.loop.schedule import Advanced
from ddpjob_trainer.loop.sharding import Sharding
from ddpjob_trainer.loop.suitable import Seen, check_model
from ddpjob_trainer.loop.weights import Weights

if TYPE_CHECKING:
    from ddpjob_trainer.loop.own_time import OwnTime

Loss = Callable[[nn.Module, Any], torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]]
"""Given the model and a batch on its device, the loss to minimise: a tensor without dimensions.

The mean over the batch's samples, as torch's losses are by default: where batches differ in size, such as at the end of
an epoch, each is weighted by its samples. Or a sum together with its weight, such as the number of tokens: the loss
of a step is then the sum over all its batches and ranks divided by all their weights. All ranks return the same kind.
"""


class Precision(StrEnum):
    """Precision of the forward pass; parameters stay float32."""

    FLOAT32 = "fp32"
    BFLOAT16 = "bf16"
    FLOAT16 = "fp16"
    """Smaller range: the loss is scaled, and a step whose gradients overflow is skipped."""


class Compression(StrEnum):
    """How gradients are compressed between the ranks."""

    FLOAT16 = "fp16"
    BFLOAT16 = "bf16"
    POWER_SGD = "powersgd"
    """Matrices of low rank (arXiv:1905.13727). What the approximation has left out is not saved in a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """How a step is computed."""

    precision: Precision = Precision.FLOAT32
    accumulate: int = 1
    """Batches per step; their gradients are averaged, and exchanged once."""
    batch_policy: BatchPolicy | None = None
    """What becomes of the global batch, which is batch size times `accumulate` times ranks, when the number of ranks
    changes. None: it is constant, except with `static_graph`, and as far as a `Session` whose loop takes one batch per
    step can (see docs/custom-loops.md)."""
    clip_norm: float | None = None
    """Gradients with a larger L2 norm are scaled down to it."""
    compression: Compression | None = None
    static_graph: bool = False
    """Promise that every step uses the same parameters, which saves work (see DistributedDataParallel)."""
    find_unused_parameters: bool = False
    """Allow steps that use only some parameters, which may differ per rank; DDP looks for them in each forward pass."""
    gradient_as_bucket_view: bool = False
    """Let gradients share memory with the buffers that are exchanged."""
    bucket_cap_mb: float | None = None
    """MiB of gradients that are exchanged at once; None is torch's own choice."""
    broadcast_buffers: bool = True
    """Give all ranks the buffers of rank 0 before each forward pass, such as BatchNorm's averages; checkpoints hold
    those of rank 0 in any case."""
    shard_optimizer: bool = False
    """Divide the optimizer's state among the ranks (ZeRO-1): each computes its parameters, and gives them to all."""
    sync_batch_norm: bool = False
    """Let BatchNorm layers normalise over the batches of all ranks; only on GPUs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", one_of(Precision, "Optimization.precision", self.precision))
        if self.compression is not None:
            object.__setattr__(self, "compression", one_of(Compression, "Optimization.compression", self.compression))
        if self.batch_policy is not None:
            object.__setattr__(
                self, "batch_policy", one_of(BatchPolicy, "Optimization.batch_policy", self.batch_policy)
            )
        if self.accumulate < 1:
            raise ValueError(f"Optimization.accumulate must be at least 1, not {self.accumulate}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"Optimization.clip_norm must be above 0, not {self.clip_norm}")
        if self.bucket_cap_mb is not None and not self.bucket_cap_mb > 0:
            raise ValueError(f"Optimization.bucket_cap_mb must be above 0, not {self.bucket_cap_mb}")
        if self.static_graph and self.batch_policy is BatchPolicy.CONSTANT:
            raise ValueError(
                'static_graph with batch_policy="constant" fails in DistributedDataParallel where fewer ranks have '
                "several batches per step: use only one of them"
            )
        if self.static_graph and self.accumulate > 1:
            # https://github.com/pytorch/pytorch/issues/143580
            raise ValueError(
                "static_graph with accumulate above 1 fails in DistributedDataParallel: use only one of them"
            )
        if self.precision is Precision.FLOAT16 and self.compression is Compression.POWER_SGD:
            # A scaled loss overflows now and then by design, and PowerSGD keeps what it left out for all later steps.
            raise ValueError("precision fp16 with compression powersgd learns nothing after an overflow: use bf16")

    @property
    def policy(self) -> BatchPolicy:
        """What becomes of the global batch."""
        if self.batch_policy is not None:
            return self.batch_policy
        return BatchPolicy.SCALE if self.static_graph else BatchPolicy.CONSTANT

    @property
    def several(self) -> bool:
        """Whether a loop of one's own is given all batches of a step, of which there may be one or several."""
        return self.accumulate > 1 or self.batch_policy is BatchPolicy.CONSTANT

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """The precision of the forward pass."""
        if self.precision is Precision.FLOAT32:
            return nullcontext()
        dtype = torch.bfloat16 if self.precision is Precision.BFLOAT16 else torch.float16
        context: AbstractContextManager[None] = torch.autocast(device.type, dtype=dtype)
        return context


class Optimizing:
    """Computes the steps of a model wrapped by DistributedDataParallel."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        *,
        scheduler: Advanced | None,
        device: torch.device,
        how: Optimization,
        weights: Weights,
        tells: bool = False,
    ) -> None:
        """Args:
        module: the model.
        optimizer: of its parameters.
        loss: of a batch.
        scheduler: advanced after every step.
        device: of this rank.
        how: a step is computed.
        weights: make the losses of batches parts of that of a step.
        tells: whether `taken` is asked for also without a scheduler.
        """
        self._module = module
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._loss = loss
        self._device = device
        self._how = how
        self._parameters = list(module.parameters())
        # Torch's own only drops the gradients, among other things that take as long as all else between two steps.
        self._clears = getattr(type(optimizer), "zero_grad", None) is not torch.optim.Optimizer.zero_grad
        check_model(module)
        self._seen = Seen(module, optimizer)
        self._parts: list[torch.Tensor] = []
        self.scaler = torch.amp.GradScaler(device.type) if how.precision is Precision.FLOAT16 else None
        self._scale: float | None = None
        self._unscaled = False
        self.buckets = Buckets()
        self._distributed: DistributedDataParallel | None = None
        self._weights = weights
        self._tells = tells or scheduler is not None
        self.taken = False
        """Whether the last step has changed the parameters, as `tells` says; it is the same on all ranks."""
        self.own_time: OwnTime | None = None
        """Notes how long this rank takes for the gradients that `backward` computes."""
        rank, world_size = dist.get_rank(), dist.get_world_size()
        self._sharding = Sharding(optimizer, rank=rank, world_size=world_size) if how.shard_optimizer else None

    @property
    def owners(self) -> list[int] | None:
        """Rank that has the optimizer's state of each parameter, by number; None: all ranks have all."""
        return None if self._sharding is None else self._sharding.owners()

    def distributed(self) -> DistributedDataParallel:
        """The model that all ranks train together; see `distribute`."""
        self._distributed = distribute(self._module, self._device, self._how, self.buckets)
        return self._distributed

    def leave(self) -> None:
        """Take the model out of the hands of what `distributed` gave, so that another one can train it."""
        self.buckets.leave()
        self.forget()
        if self.own_time is not None:
            self.own_time.detach()
        model, self._distributed = self._distributed, None
        if model is not None:
            leave(model)

    def add(
        self,
        model: DistributedDataParallel,
        batch: Any,  # noqa: ANN401 whatever the data set holds
        *,
        last: bool,
        weight: float,
        computed: Callable[[], None],
    ) -> None:
        """Add the gradients of a batch to those of the step.

        Args:
            model: what `distributed` gave.
            batch: on the device.
            last: whether it is the last one of this step: then the gradients are exchanged.
            weight: of its loss in that of the step.
            computed: called between the forward and the backward pass.
        """
        if not self._parts:
            self.forget()
        with nullcontext() if last else model.no_sync():
            with self._how.autocast(self._device):
                loss = self._loss(model, batch)
            computed()
            self.backward(loss, weight, last=last)

    def backward(self, loss: object, weight: float, *, last: bool) -> None:
        """Compute the gradients of a loss.

        Args:
            loss: of a batch: a mean, or a sum with its weight.
            weight: of it in that of the step.
            last: whether it is the last one of this step.

        Raises:
            MisuseError: it is neither, or not what other ranks or batches have.
        """
        # Shares of one mean: neither the number of batches nor that of ranks changes what a step learns.
        part = self._weights.part(loss, share=weight, last=last)
        whole = part if self.scaler is None else self.scaler.scale(part)
        own_time = self.own_time if last else None
        if own_time is not None:
            own_time.before_backward(whole)
        whole.backward()
        if own_time is not None and self._sharding is None:
            # What follows is the optimizer, which with a sharded one also waits for the others'.
            own_time.compute()
        self._parts.append(part.detach())

    def take_losses(self, other: "Optimizing") -> None:
        """Take over the losses whose gradients another one has computed."""
        self._parts, other._parts = other._parts, []  # noqa: SLF001 one of the same kind

    def forget(self) -> None:
        """Drop the gradients and losses of a step that does not count."""
        self._parts = []
        self._weights.forget()
        if self._clears:
            self._optimizer.zero_grad(set_to_none=True)
        # Parameters that the optimizer does not change may have gradients too, which are exchanged with the others.
        for each in self._parameters:
            each.grad = None

    def step(self, finite: Finite, *, measure: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor, float] | None:
        """Change the parameters.

        Args:
            finite: remembers the losses, and decides whether the step is left out.
            measure: whether to return what it was.
            scale: applied to the exchanged gradients, and to the loss, unless losses are sums with weights.

        Returns:
            With `measure`: the loss, the gradients' norm before clipping, and the learning rate.

        Raises:
            NonFiniteError: too many steps in a row were left out.
            MisuseError: with `measure`, the gradient of a parameter was not averaged over the ranks; or a batch had a
                weight that is none.
        """
        norm, clip = None, self._how.clip_norm
        by_weight = self._weights.scale(read=measure)
        factor = scale if by_weight is None else by_weight
        scaled = by_weight is not None or scale != 1
        if scaled:
            for each in self._parameters:
                if each.grad is not None:
                    each.grad.mul_(factor)
        if measure:
            self._seen.check()
        self._unscaled = measure or clip is not None or finite.decides_each_step
        if self._unscaled:
            if self.scaler is not None:
                self.scaler.unscale_(self._optimizer)
            changed = [each for group in self._optimizer.param_groups for each in group["params"]]
            norm = nn.utils.get_total_norm([values_of(each.grad) for each in changed if each.grad is not None])
            if clip is not None:
                nn.utils.clip_grads_with_norm_(changed, clip, norm)
        parts, self._parts = self._parts, []
        rate = float(self._optimizer.param_groups[0]["lr"])
        left_out = finite.decides_each_step and norm is not None and finite.leaves_out(norm, parts)
        finite.add(parts, left_out=left_out)
        self.taken = not left_out and self._change_parameters()
        if self.taken and self._scheduler is not None:
            self._scheduler.step()
        if not measure or norm is None:
            return None
        loss = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
        return loss * factor if scaled else loss, norm, rate

    def _change_parameters(self) -> bool:
        """Whether it was done: a step whose gradients overflow in float16 is left out."""
        if self._sharding is None:
            return self._change()
        if self.scaler is not None and not self._unscaled:
            # All gradients decide whether they overflow, on all ranks.
            self.scaler.unscale_(self._optimizer)
        with self._sharding.own():
            return self._change()

    def _change(self) -> bool:
        if self.scaler is None:
            self._optimizer.step()
            return True
        if self._scale is None:
            self._scale = self.scaler.get_scale()
        self.scaler.step(self._optimizer)
        self.scaler.update()
        if not self._tells:
            # Nobody asks, and the answer would wait for the device.
            return True
        before, self._scale = self._scale, self.scaler.get_scale()
        return self._scale >= before
