"""What a session computes with: its models and optimizers, and everything else that its checkpoints keep."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from ddpjob_trainer.checkpointing.snapshot import Stateful, TrainingState
from ddpjob_trainer.loop.buckets import Buckets
from ddpjob_trainer.loop.finite import Finite, OnNan
from ddpjob_trainer.loop.global_batch import GlobalBatch
from ddpjob_trainer.loop.kept import Kept
from ddpjob_trainer.loop.listening import attach, states_of
from ddpjob_trainer.loop.optimization import Optimization, Optimizing, Precision, distribute
from ddpjob_trainer.loop.suitable import Seen, check_model
from ddpjob_trainer.loop.weights import Weights
from ddpjob_trainer.observability.listener import Listener
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class Registered:
    """Models, optimizers and further states, by name."""

    def __init__(
        self,
        group: Group,
        how: Optimization,
        on_nan: OnNan,
        found: Callable[[int, str], None] = lambda _step, _what: None,
    ) -> None:
        """Args:
        group: the processes of the training.
        how: a step is computed.
        on_nan: what to do about a loss or gradient that is not finite.
        found: called with the step and a message when there was one, on all ranks.
        """
        self._group = group
        self._how = how
        self._on_nan = on_nan
        self._found = found
        self._everything = nn.ModuleDict()
        self._states = _States()
        self._buckets: Buckets | None = None
        self._weights = Weights(group.exchange, group.world_size)
        self.batch = GlobalBatch(how, group, several=how.several)
        self.kept = Kept()
        self.models: dict[str, DistributedDataParallel] = {}
        self.optimizings: list[tuple[Optimizer, Optimizing, Finite]] = []
        states: Any = self._states
        self.finite = self._finite_of(self._everything, states, scaled=how.precision is Precision.FLOAT16)
        """The check of everything that is registered; the first optimizer reports its losses to it."""

    @property
    def modules(self) -> list[nn.Module]:
        """The models as they are without what makes the ranks train them together, and frozen ones."""
        return list(self._everything.values())

    @property
    def trained(self) -> "list[DistributedDataParallel]":
        """The models that all ranks train together."""
        return list(self.models.values())

    def add_model(self, name: str, module: nn.Module) -> nn.Module:
        """A model on the device; with parameters to train, as one that all ranks train together.

        Raises:
            MisuseError: the name is taken, or the ranks cannot train it together.
        """
        module.to(self._group.device)
        self.kept.add(name, module)
        self._everything[name.replace(".", "_")] = module
        if not any(each.requires_grad for each in module.parameters()):
            return module
        check_model(module)
        buckets = Buckets()
        self.models[name] = distribute(module, self._group.device, self._how, buckets)
        if len(self._everything) == 1:
            self._buckets = buckets
        else:
            self.kept.add(f"{name}.buckets", buckets)
        return self.models[name]

    def add(self, name: str, state: Stateful) -> None:
        """A state to keep; an optimizer is also what steps change parameters with.

        Args:
            name: in checkpoints.
            state: to keep.

        Raises:
            MisuseError: the name is taken, or it cannot be saved.
        """
        self.kept.add(name, state)
        if not isinstance(state, Optimizer):
            return
        if self.optimizings and self._how.precision is Precision.FLOAT16:
            raise MisuseError("precision fp16 scales the loss for one optimizer: with several, use bf16")
        if self.optimizings and self._how.shard_optimizer:
            raise MisuseError("shard_optimizer divides the state of one optimizer: with several, leave it out")
        parameters = nn.ParameterList(each for group in state.param_groups for each in group["params"])
        optimizing = Optimizing(
            parameters,
            state,
            _no_loss,
            scheduler=None,
            device=self._group.device,
            how=self._how,
            weights=self._weights,
            tells=True,
        )
        own = self._finite_of(parameters, state, main=self.finite) if self.optimizings else self.finite
        self.optimizings.append((state, optimizing, own))
        self._states.optimizers.append(state)

    def attach(self, listeners: Sequence[Listener]) -> None:
        """Give listeners the first model and optimizer, and keep the states of those that have one.

        Raises:
            MisuseError: there is no model or no optimizer, or the name of a state is taken.
        """
        state: Any = self.state()
        attach(listeners, state.model, state.optimizer, self._group.exchange)
        for name, each in states_of(listeners).items():
            if not self.kept.has(each):
                self.kept.add(name, each)

    def check(self) -> None:
        """Check that there is something to train, and that the ranks train it together.

        Raises:
            MisuseError: the check has failed.
        """
        self.state()
        for optimizer, _, _ in self.optimizings:
            Seen(self._everything, optimizer)

    def _finite_of(self, module: nn.Module, optimizer: Optimizer, **options: Any) -> Finite:  # noqa: ANN401 of Finite
        ranks = self._group
        return Finite(
            ranks.exchange, module, optimizer, policy=self._on_nan, rank=ranks.rank, found=self._found, **options
        )

    def state(self) -> TrainingState:
        """What checkpoints hold.

        Raises:
            MisuseError: there is no model or no optimizer.
        """
        module = next(iter(self._everything.values()), None)
        if module is None or not self.optimizings:
            raise MisuseError(
                "a session needs a model and an optimizer: model = session.model(...), and "
                'optimizer = session.keep("optimizer", ...)'
            )
        (optimizer, optimizing, _), *_ = self.optimizings
        others = self.kept.without(module, optimizer)
        return TrainingState(
            module,
            optimizer,
            scaler=optimizing.scaler,
            others=others,
            buckets=self._buckets,
            weights=self._weights,
            batch=self.batch,
            owners=optimizing.owners,
        )


class _States:
    """The states of several optimizers as if they were those of one."""

    def __init__(self) -> None:
        self.optimizers: list[Optimizer] = []

    @property
    def state(self) -> dict[Any, Any]:
        return {parameter: each for optimizer in self.optimizers for parameter, each in optimizer.state.items()}


def _no_loss(*_: object) -> torch.Tensor:
    raise NotImplementedError("a session is given its loss")
