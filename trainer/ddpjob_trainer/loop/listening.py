"""What listeners are given of a training, and what checkpoints keep of them."""

import logging
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ddpjob_trainer.checkpointing.snapshot import Stateful
from ddpjob_trainer.observability.listener import Listener, Training
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.exchange import Exchange

_log = logging.getLogger(__name__)


def attach(
    listeners: Sequence[Listener],
    model: nn.Module,
    optimizer: Optimizer,
    exchange: Exchange,
    *,
    share: bool = True,
    known: bool = False,
) -> None:
    """Give the listeners what is trained; all ranks call it together.

    Rank 0's weights are those of the training, which an average that a listener keeps has to begin with on all ranks.

    Args:
        listeners: of this rank.
        model: that is trained.
        optimizer: of its parameters.
        exchange: between the ranks.
        share: whether rank 0 gives its weights; not where another rank is about to give those of a training.
        known: whether they have been given it before: what they keep must stay.
    """
    interested = [each for each in listeners if type(each).attached is not Listener.attached]
    # The listeners of one rank alone may be of another kind.
    if share and exchange.sum(len(interested))[0]:
        for tensor in (*model.parameters(), *model.buffers()):
            exchange.copy_of_first(tensor)
    for each in () if known else interested:
        each.attached(Training(model, optimizer))


def states_of(listeners: Sequence[Listener]) -> dict[str, Stateful]:
    """The listeners that have a state, by its name.

    Raises:
        MisuseError: two have the same name.
    """
    states: dict[str, Stateful] = {}
    for each in listeners:
        found: Any = each
        if not all(callable(getattr(found, method, None)) for method in ("state_dict", "load_state_dict")):
            continue
        name = each.state_name or type(each).__name__
        if name in states:
            raise MisuseError(
                f"two listeners keep their state in checkpoints as {name!r}: give one of them another state_name"
            )
        states[name] = found
    return states


class ListenerStates:
    """The states of a training's listeners; itself a state."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        """Args:
        listeners: of the training; those without a state are passed over.

        Raises:
            MisuseError: two have a state of the same name.
        """
        self._states = states_of(listeners)

    def state_dict(self) -> dict[str, Any]:
        """All states by name."""
        return {name: state.state_dict() for name, state in self._states.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore all states; a listener that is new begins without one.

        Raises:
            ValueError: there is a state of a listener that is not there: it would be lost with the next checkpoint.
        """
        unknown = sorted(state_dict.keys() - self._states.keys())
        if unknown:
            raise ValueError(f"it has the state of {', '.join(unknown)}, which is not among the listeners")
        for name, state in self._states.items():
            if name in state_dict:
                state.load_state_dict(state_dict[name])
            else:
                _log.warning("the checkpoint has no state of the listener %s, which begins without one", name)
