"""spec.template.spec.hostNetwork: pods that share their nodes' network, as with `docker run --network=host`.

Each port of such a pod is one of its node: the API server makes them host ports, and the scheduler never puts two
pods that share a port on one node. The service's records hold the nodes' addresses. A pod's own host name is that of
its node, so nothing may be looked up by it.
"""

from collections.abc import Mapping
from typing import Any, Final

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.template import on_host_network

_CLUSTER_DNS: Final = "ClusterFirstWithHostNet"


def host_network_fields(template: Mapping[str, Any]) -> dict[str, str]:
    """Further fields of the pod's spec: the node's resolver, its default, does not know the cluster's names.

    A dnsPolicy set in the template is kept.
    """
    given = on_host_network(template) and (template.get("spec") or {}).get("dnsPolicy")
    return {"dnsPolicy": _CLUSTER_DNS} if on_host_network(template) and not given else {}


def host_network_environment(template: Mapping[str, Any]) -> dict[str, str]:
    """Variables that tell the launcher, because gloo cannot find its interface by the host name then."""
    return {"DDPJOB_HOST_NETWORK": "1"} if on_host_network(template) else {}


def ports_of(spec: DDPJobSpec, processes: int) -> dict[str, range]:
    """The ports that each pod uses, by the field that sets them.

    Args:
        spec: the job's spec.
        processes: training processes per node.
    """
    rendezvous, metrics = spec.rendezvous.port, spec.metrics.port
    return {
        "spec.rendezvous.port": range(rendezvous, rendezvous + 1),
        "spec.metrics.port": range(metrics, metrics + processes),
    }


def ports_in_common(ours: Mapping[str, range], theirs: Mapping[str, range]) -> dict[str, range]:
    """Those of our ports that are also theirs, by the field that sets ours."""
    shared: dict[str, range] = {}
    for field, wanted in ours.items():
        for taken in theirs.values():
            both = range(max(wanted.start, taken.start), min(wanted.stop, taken.stop))
            if both:
                known = shared.get(field, both)
                shared[field] = range(min(known.start, both.start), max(known.stop, both.stop))
    return shared
