"""The order in which DistributedDataParallel exchanges gradients, the same after a resume as without an interruption.

During its first step DistributedDataParallel notes in which order gradients become ready, and from the second step on
packs them into buckets in that order. Among three ranks or more, the place of a gradient in its bucket decides in which
order the ranks' values are added up, and so the last digits of the sum. The first step after a resume would pack them
differently, and everything after it would differ too.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class Buckets:
    """Remembers the order of the first step; checkpoints keep it.

    With `find_unused_parameters` buckets stay as they were created, and with `static_graph` no step may be rehearsed: a
    resume restores neither.
    """

    def __init__(self) -> None:
        self._order: list[int] = []
        self._model: DistributedDataParallel | None = None
        self._handles: list[RemovableHandle] = []

    def attach(self, model: DistributedDataParallel) -> None:
        """Restore the order that was loaded; without one, remember that of the first step.

        Args:
            model: that has made no step; what compresses its gradients comes later, and sees only real ones.
        """
        self._model = model
        self._apply(model)

    def leave(self) -> None:
        """Leave the parameters to another model."""
        self._forget()
        self._model = None

    def state_dict(self) -> dict[str, Any]:
        """The numbers of the parameters, in the order in which their gradients became ready."""
        return {} if self._handles else {"order": list(self._order)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with a saved order, which an attached model takes over before its first step."""
        self._order = list(state_dict.get("order", ()))
        if self._model is not None:
            self._apply(self._model)

    def _apply(self, model: DistributedDataParallel) -> None:
        self._forget()
        if model.find_unused_parameters or model.static_graph:
            return
        parameters = [each for each in model.module.parameters() if each.requires_grad]
        if sorted(self._order) == list(range(len(parameters))):
            _rehearse(model, [parameters[index] for index in self._order])
        else:
            self._remember(model, parameters)

    def _remember(self, model: DistributedDataParallel, parameters: list[nn.Parameter]) -> None:
        found: dict[int, None] = {}

        def ready(index: int) -> None:
            # Of a step of several batches, the last one's gradients are exchanged.
            if model.require_backward_grad_sync:
                found[index] = None
            if len(found) == len(parameters):
                self._order = list(found)
                self._forget()

        self._handles = [
            each.register_post_accumulate_grad_hook(lambda _, index=index: ready(index))
            for index, each in enumerate(parameters)
        ]

    def _forget(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _rehearse(model: DistributedDataParallel, parameters: list[nn.Parameter]) -> None:
    """Let gradients of zero become ready in this order, after which the model arranges its buckets."""
    layers = (nn.Embedding, nn.EmbeddingBag)
    sparse = {id(each.weight) for each in model.module.modules() if isinstance(each, layers) and each.sparse}
    model.reducer.prepare_for_backward([])
    for each in parameters:
        each.backward(_sparse_zero(each) if id(each) in sparse else torch.zeros_like(each))
    for each in parameters:
        each.grad = None


def _sparse_zero(parameter: torch.Tensor) -> torch.Tensor:
    row = torch.zeros((1, 1), dtype=torch.int64, device=parameter.device)
    return torch.sparse_coo_tensor(row, torch.zeros_like(parameter[:1]), parameter.shape)
