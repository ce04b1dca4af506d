"""spec.procsPerNode and spec.backend: training processes per node, their GPUs, and the backend they use."""

from collections.abc import Mapping
from typing import Any

from ddpjob_core.api.accelerators import Accelerator, accelerator_of, unknown_accelerators
from ddpjob_core.api.quantity import parse_quantity
from ddpjob_core.api.spec import Backend, DDPJobSpec
from ddpjob_core.children.template import resources_of


def processes_of(spec: DDPJobSpec) -> int:
    """Training processes per node, `auto` resolved. Expects a template without errors."""
    return resolve_procs_per_node(spec.procs_per_node, resources_of(spec))


def resolve_procs_per_node(asked: int | str, resources: Mapping[str, Any]) -> int:
    """The number of processes per node.

    `auto` is the number of requested GPUs, or 1 where several of them are not for several processes; else the CPU
    request rounded down, at least 1. It is never the host's CPU count, which torchrun's own `auto` uses although the
    container may have only a fraction of it.

    Args:
        asked: spec.procsPerNode.
        resources: `resources` of the merged trainer container.
    """
    if isinstance(asked, int):
        return asked
    devices = _devices(resources)
    if not devices:
        return max(1, _whole(_requests(resources).get("cpu", 1)))
    return max(1, sum(count for kind, count in devices if kind.process_each))


def resolve_backend(asked: Backend, resources: Mapping[str, Any]) -> Backend:
    """The backend of the process group, `auto` resolved: nccl if all requested GPUs can use it.

    Args:
        asked: spec.backend.
        resources: `resources` of the merged trainer container.
    """
    if asked is not Backend.AUTO:
        return asked
    devices = _devices(resources)
    return Backend.NCCL if devices and all(kind.backend is Backend.NCCL for kind, _ in devices) else Backend.GLOO


def gpus_of(resources: Mapping[str, Any], *, cuda: bool = False) -> int:
    """The number of GPUs, or of parts of GPUs, that the `resources` of the merged trainer container request.

    Args:
        resources: of that container.
        cuda: whether only those count that torch knows as devices of type cuda, which AMD's are as well.
    """
    return sum(count for kind, count in _devices(resources) if kind.cuda or not cuda)


def unknown_devices(resources: Mapping[str, Any]) -> list[str]:
    """Names of requested resources that look like accelerators, but of which nothing is known."""
    return unknown_accelerators(name for name, count in _requests(resources).items() if _whole(count) > 0)


def _devices(resources: Mapping[str, Any]) -> list[tuple[Accelerator, int]]:
    """The requested devices by their kind, and how many."""
    asked = ((accelerator_of(name), _whole(count)) for name, count in _requests(resources).items())
    return [(kind, count) for kind, count in asked if kind is not None and count > 0]


def _requests(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The requests, with a limit as the default of a missing request, as the API server sets them."""
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _whole(quantity: float | str) -> int:
    """A quantity rounded down, 0 for an invalid one."""
    return int(parse_quantity(quantity) or 0)
