"""The operator's replicas on the cluster that KUBECONFIG names: which one leads, and what can be done to it."""

import json
import time
from dataclasses import dataclass
from typing import Any, Final

from hack.cluster.deploy import NAMESPACE, kubectl
from hack.cluster.engine import Engine
from hack.console import StepError

OVERLAY: Final = "manifests/overlays/high-availability"
_LEASE: Final = "ddpjob-operator"
_LABEL: Final = "app.kubernetes.io/name=ddpjob-operator"
_LOOK_EVERY: Final = 0.1
# Of all processes on the node, those of the pod's cgroup that are the operator.
_FIND: Final = (
    'for each in /proc/[0-9]*; do grep -qs "$0" "$each/cgroup" && grep -qs ddpjob_operator "$each/cmdline" '
    '&& echo "${each#/proc/}"; done; true'
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The pods of the operator, on nodes that are containers of this engine."""

    engine: Engine

    def pods(self) -> list[dict[str, Any]]:
        """Those that are not being deleted."""
        found: list[dict[str, Any]] = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", _LABEL, "-o", "json"))[
            "items"
        ]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def holder(self) -> str:
        """The pod that holds the Lease, "" where none does."""
        spec = json.loads(kubectl("-n", NAMESPACE, "get", "lease", _LEASE, "-o", "json"))["spec"]
        return str(spec.get("holderIdentity", "")).partition("_")[0]

    def wait_for_other(self, former: str, seconds: float = 60.0) -> tuple[str, float]:
        """The pod that leads in place of the former one, and when that was seen.

        Raises:
            StepError: none does.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            holder = self.holder()
            if holder not in ("", former):
                return holder, time.monotonic()
            time.sleep(_LOOK_EVERY)
        raise StepError(f"nobody has taken over from {former} within {seconds:g} s")

    def kill(self, name: str) -> float:
        """End a pod's process so that it can release nothing, and its pod with it; returns when.

        It stands still first: a process that is deleted is asked to stop before it is killed.

        Raises:
            StepError: it was not found.
        """
        (pod,) = (each for each in self.pods() if each["metadata"]["name"] == name)
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        # In the name of a cgroup of systemd's, a dash separates slices.
        slice_name = uid.replace("-", "_")
        processes = (self.engine.output("exec", node, "sh", "-c", _FIND, slice_name) or "").split()
        processes = processes or (self.engine.output("exec", node, "sh", "-c", _FIND, uid) or "").split()
        if not processes or self.engine.output("exec", node, "kill", "-STOP", *processes) is None:
            raise StepError(f"no process of pod {name} was found on node {node}")
        at = time.monotonic()
        kubectl("-n", NAMESPACE, "delete", "pod", name, "--force", "--grace-period=0", "--wait=false")
        return at

    def stop(self, name: str) -> float:
        """Delete a pod as an update does; returns when."""
        at = time.monotonic()
        kubectl("-n", NAMESPACE, "delete", "pod", name, "--wait=false")
        return at

    def wait_until_ready(self) -> None:
        """Until as many pods are ready as there should be."""
        kubectl("-n", NAMESPACE, "rollout", "status", "deployment/ddpjob-operator", "--timeout=120s")

    def metrics(self, name: str) -> dict[str, float]:
        """The series of a pod's /metrics."""
        text = kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy/metrics")
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in lines}
