"""Extended resources that are GPUs: how many processes they are for, and which backend moves tensors between them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ddpjob_core.api.spec import Backend


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Devices of one kind, by the names of their resources.

    Attributes:
        names: pattern of the whole name.
        written: the names, for people.
        what: what one of them is, for people.
        process_each: whether each is for a process of its own; otherwise a node has one process, however many it has.
        backend: what spec.backend comes to where it is auto.
        because: why, for people.
        cuda: whether torch knows it as a device of type cuda.
        known: whether the name says for certain what it is.
    """

    names: re.Pattern[str]
    written: str
    what: str
    process_each: bool
    backend: Backend
    because: str
    cuda: bool = True
    known: bool = True


ACCELERATORS: Final = (
    Accelerator(
        re.compile(r"nvidia\.com/gpu"),
        "`nvidia.com/gpu`",
        "NVIDIA GPU",
        process_each=True,
        backend=Backend.NCCL,
        because="",
    ),
    Accelerator(
        re.compile(r"nvidia\.com/gpu\.shared"),
        "`nvidia.com/gpu.shared`",
        "share of an NVIDIA GPU",
        process_each=False,
        backend=Backend.GLOO,
        because="several shares may be of one GPU, which NCCL refuses",
    ),
    Accelerator(
        re.compile(r"nvidia\.com/mig-[a-z0-9.+-]+"),
        "`nvidia.com/mig-1g.5gb` and others",
        "MIG slice of an NVIDIA GPU",
        process_each=False,
        backend=Backend.GLOO,
        because="a process sees only one slice, and slices cannot reach each other's memory",
    ),
    Accelerator(
        re.compile(r"amd\.com/(gpu|[sdtqc]px_nps[0-9]+)"),
        "`amd.com/gpu`, `amd.com/cpx_nps4` and others",
        "AMD GPU, or a partition of one",
        process_each=True,
        backend=Backend.NCCL,
        because="torch calls RCCL nccl",
    ),
    Accelerator(
        re.compile(r"gpu\.intel\.com/(i915|xe)"),
        "`gpu.intel.com/i915`, `gpu.intel.com/xe`",
        "Intel GPU",
        process_each=True,
        backend=Backend.GLOO,
        because="NCCL does not run on it; a program that computes on it starts torch's backend xccl itself",
        cuda=False,
    ),
    Accelerator(
        re.compile(r"[^/]+/gpu"),
        "`.../gpu` of anybody else",
        "taken for a GPU with NCCL",
        process_each=True,
        backend=Backend.NCCL,
        because="an Event says that it is not known",
        known=False,
    ),
)
"""The first one that matches counts."""

_KUBERNETES: Final = "kubernetes.io"
_VENDORS: Final = frozenset({"nvidia.com", "amd.com", "gpu.intel.com", "habana.ai"})
_WORDS: Final = ("gpu", "vgpu", "npu", "tpu", "hpu", "xpu", "ipu", "vpu", "ppu", "dcu", "mlu", "gcu", "vcuda", "gaudi")
_BEGINNINGS: Final = ("neuron", "ascend", "accelerator")
_OTHER_DEVICES: Final = frozenset({"rdma", "nic", "sriov", "hostdev", "monitoring"})
"""Words in the names of other devices of the same vendors."""


def accelerator_of(resource: str) -> Accelerator | None:
    """The kind of device that a resource of this name is, None if it is none that counts."""
    return next((each for each in ACCELERATORS if each.names.fullmatch(resource)), None)


def unknown_accelerators(resources: Iterable[str]) -> list[str]:
    """Names that look like those of accelerators, but do not say what they are."""
    return sorted(
        name
        for name in resources
        if (not kind.known if (kind := accelerator_of(name)) is not None else _may_be_one(name))
    )


def _may_be_one(resource: str) -> bool:
    # In time in proportion to the name, which comes from a template.
    domain, _, name = resource.partition("/")
    words = re.findall(r"[a-z]+", name.lower())
    if not words or domain.endswith(_KUBERNETES) or not _OTHER_DEVICES.isdisjoint(words):
        return False
    return domain in _VENDORS or any(word in _WORDS or word.startswith(_BEGINNINGS) for word in words)
