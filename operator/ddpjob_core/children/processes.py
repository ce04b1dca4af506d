"""spec.procsPerNode and spec.backend: training processes per node, their GPUs, and the backend they use."""

from collections.abc import Mapping
from typing import Any

from ddpjob_core.api.quantity import parse_quantity
from ddpjob_core.api.spec import Backend


def resolve_procs_per_node(asked: int | str, resources: Mapping[str, Any]) -> int:
    """The number of processes per node.

    `auto` is the number of requested GPUs, else the CPU request rounded down, at least 1. It is never the host's CPU
    count, which torchrun's own `auto` uses although the container may have only a fraction of it.

    Args:
        asked: spec.procsPerNode.
        resources: `resources` of the merged trainer container.
    """
    if isinstance(asked, int):
        return asked
    return gpus_of(resources) or max(1, _whole(_requests(resources).get("cpu", 1)))


def resolve_backend(asked: Backend, resources: Mapping[str, Any]) -> Backend:
    """The backend of the process group, `auto` resolved.

    Args:
        asked: spec.backend.
        resources: `resources` of the merged trainer container.
    """
    if asked is not Backend.AUTO:
        return asked
    return Backend.NCCL if gpus_of(resources) else Backend.GLOO


def gpus_of(resources: Mapping[str, Any]) -> int:
    """The number of GPUs, or of GPU slices, that the `resources` of the merged trainer container request."""
    return sum(_whole(count) for name, count in _requests(resources).items() if _is_gpu(name))


def _requests(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The requests, with a limit as the default of a missing request, as the API server sets them."""
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _is_gpu(resource: str) -> bool:
    """Whether a resource of this name is a GPU or a GPU slice."""
    return resource.endswith("/gpu") or resource.startswith("nvidia.com/mig-")


def _whole(quantity: float | str) -> int:
    """A quantity rounded down, 0 for an invalid one."""
    return int(parse_quantity(quantity) or 0)
