"""Pods, namespaces and NetworkPolicies of the API server, as far as the rules of a node depend on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod with addresses of its own: neither on its node's network nor ended.

    `ports` are the numbers of its named ports, by name and protocol.
    """

    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """A NetworkPolicy; `spec` is as the API server has it."""

    namespace: str
    name: str
    spec: Json


def pod_of(raw: Json) -> Pod | None:
    """The pod, None for one without an address of its own.

    That of one that has ended may be another pod's by now: it must neither be let in nor be protected as the first.
    """
    spec, status, metadata = raw["spec"], raw.get("status") or {}, raw["metadata"]
    if spec.get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    addresses = tuple(each["ip"] for each in status.get("podIPs") or () if each.get("ip"))
    if not addresses or not spec.get("nodeName"):
        return None
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    ports = [port for container in containers for port in container.get("ports") or () if port.get("name")]
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=spec["nodeName"],
        labels=metadata.get("labels") or {},
        addresses=addresses,
        ports={(port["name"], port.get("protocol", "TCP")): port["containerPort"] for port in ports},
    )


def policy_of(raw: Json) -> Policy:
    """The policy."""
    return Policy(raw["metadata"]["namespace"], raw["metadata"]["name"], raw.get("spec") or {})
