"""spec.procsPerNode: how many training processes a node runs."""

from typing import Any

from ddpjob.quantity import parse_quantity


def resolve_procs_per_node(asked: int | str, resources: dict[str, Any]) -> int:
    """The number of processes on each node.

    `auto` is the number of GPUs asked for, else the CPU request rounded down, at least 1; never the host's CPU count,
    which torchrun's own `auto` takes although the container may use a fraction of it.

    Args:
        asked: spec.procsPerNode.
        resources: `resources` of the merged trainer container.
    """
    if isinstance(asked, int):
        return asked
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    wanted = {**limits, **requests}
    gpus = sum(whole(count) for name, count in wanted.items() if is_gpu(name))
    return gpus or max(1, whole(wanted.get("cpu", 1)))


def is_gpu(resource: str) -> bool:
    """Whether a resource of this name is a GPU or a part of one."""
    return resource.endswith("/gpu") or resource.startswith("nvidia.com/mig-")


def whole(quantity: float | str) -> int:
    """A quantity rounded down, 0 for what is none."""
    return int(parse_quantity(quantity) or 0)
