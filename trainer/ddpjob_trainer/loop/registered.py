"""What a session computes with: its models and optimizers, and everything else that its checkpoints keep."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from ddpjob_trainer.checkpointing.snapshot import Stateful, TrainingState, without_copies
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.loop.buckets import Buckets
from ddpjob_trainer.loop.distributing import can_be_alone, distribute, has_other_hooks, leave
from ddpjob_trainer.loop.finite import Finite, OnNan
from ddpjob_trainer.loop.global_batch import GlobalBatch
from ddpjob_trainer.loop.kept import Kept
from ddpjob_trainer.loop.listening import attach, states_of
from ddpjob_trainer.loop.optimization import Optimization, Optimizing, Precision
from ddpjob_trainer.loop.rewinding import Rewinding
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
        # What the program has registered, in its order; whether it is a model.
        self._given: list[tuple[str, Any, bool]] = []
        self._empty()

    def _empty(self) -> None:
        group, how = self._group, self._how
        self._everything = nn.ModuleDict()
        self._states = _States()
        self._buckets: Buckets | None = None
        self._all_buckets: list[Buckets] = []
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
        regrouping = self._group.regrouping
        # Where other ranks wait for this process, they are about to give it what they have.
        return self._add_model(name, module, alone=regrouping is not None and regrouping.is_awaited)

    def _add_model(
        self, name: str, module: nn.Module, *, alone: bool, again: "DistributedDataParallel | None" = None
    ) -> nn.Module:
        module.to(self._group.device)
        self._keep(name, module, model=True)
        self._everything[name.replace(".", "_")] = module
        if not any(each.requires_grad for each in module.parameters()):
            return module
        check_model(module)
        buckets = Buckets()
        self.models[name] = distribute(module, self._group.device, self._how, buckets, again=again, alone=alone)
        self._all_buckets.append(buckets)
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
        self._keep(name, state)
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

    def attach(self, listeners: Sequence[Listener], *, share: bool, known: bool) -> None:
        """Give listeners the first model and optimizer, and keep the states of those that have one.

        Args:
            listeners: of this rank.
            share: whether all ranks get the weights of rank 0 before.
            known: whether they have been given both already.

        Raises:
            MisuseError: there is no model or no optimizer, or the name of a state is taken.
        """
        state: Any = self.state()
        attach(listeners, state.model, state.optimizer, self._group.exchange, share=share, known=known)
        for name, each in states_of(listeners).items():
            if not self.kept.has(each):
                self._keep(name, each)

    def check(self) -> None:
        """Check that there is something to train, and that the ranks train it together.

        Raises:
            MisuseError: the check has failed.
        """
        self.state()
        for optimizer, _, _ in self.optimizings:
            Seen(self._everything, optimizer)

    def leave(self) -> None:
        """Take everything out of the hands of a group that is left."""
        for buckets in self._all_buckets:
            buckets.leave()
        for _, optimizing, _ in self.optimizings:
            optimizing.forget()
        for model in self.models.values():
            leave(model)

    def renew(self) -> None:
        """Set up the same again in the group of the ranks that there are now.

        The models that the program was given stay what they are. Nothing is exchanged: a rank has the state for all.
        """
        self.leave()
        given, before = self._given, self.models
        self._given = []
        self._empty()
        for name, each, is_model in given:
            if is_model:
                self._add_model(name, each, alone=True, again=before.get(name))
            else:
                self.add(name, each)

    def is_alike(self) -> bool:
        """Whether all ranks train the same parameters, which `renew` does not ask; all ranks call it together."""
        form = [
            (model, name, list(each.shape), each.requires_grad)
            for model, module in self.models.items()
            for name, each in module.named_parameters()
        ]
        return len(set(self._group.exchange.gather_bytes(json.dumps(form).encode()))) == 1

    def rewinding(self) -> Rewinding:
        """What puts all of it back to where a step began."""
        optimizers = [optimizer for optimizer, _, _ in self.optimizings]
        trained = [each.module for each in self.models.values()]
        states = {
            name: each
            for name, each, _ in self._given
            if name not in self.models and not any(each is one for one in optimizers)
        }
        return Rewinding(trained, optimizers, states)

    def obstacle(self) -> str | None:
        """Why the ranks could not go on without the process of another one; None if they can."""
        if not can_be_alone():
            return "this torch makes no model that ranks train together without an exchange"
        if any(has_other_hooks(each, self._how) for each in self.models.values()):
            return "a model has a communication hook of the program"
        for optimizer, _, _ in self.optimizings:
            scheduled = any("initial_lr" in group for group in optimizer.param_groups)
            if scheduled and not any(getattr(each, "optimizer", None) is optimizer for _, each, _ in self._given):
                return 'a learning-rate scheduler is not kept: session.keep("scheduler", ...)'
        try:
            without_copies(self.state(), Position())
        except TypeError as reason:
            return f"the state of the training cannot be given to another rank: {reason}"
        return None

    def _keep(self, name: str, state: Any, *, model: bool = False) -> None:  # noqa: ANN401 or a model
        self.kept.add(name, state)
        self._given.append((name, state, model))

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
