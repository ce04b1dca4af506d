"""`make cluster`: a kind cluster of one control plane and two workers, made once and healed when it is not well."""

import argparse
import json
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cache import ROOT, cache_folder, hash_of, only_one
from hack.cluster.engine import Engine, choose_engine
from hack.cluster.leftovers import remove_folder
from hack.cluster.node_image import forget_older_node_images, node_image
from hack.cluster.programs import TOOLS, programs_folder
from hack.cluster.shared_storage import FOLDER_ON_NODES, offer_shared_volumes
from hack.console import StepError, main_guard, output_of, run_step, say

NAME: Final = os.environ.get("DDPJOB_CLUSTER_NAME", "ddpjob")
IPV6_CLUSTER: Final = f"{NAME}-ipv6"
"""The cluster of IPv6 alone, which make test-full makes in addition to the usual one and removes again."""
IP_FAMILIES: Final = ("ipv4", "ipv6", "dual")
READY_WITHIN_SECONDS: Final = 30.0
NEW_READY_WITHIN_SECONDS: Final = 180.0
AUDIT_LOG: Final = "audit.log"
LOG: Final = ROOT / ".build/log/cluster.log"


@dataclass(frozen=True)
class Cluster:
    """Where the cluster's files are on this machine; they belong to the machine, not to one clone of the repository."""

    folder: Path
    programs: Path

    @property
    def kubeconfig(self) -> Path:
        """The cluster's own kubeconfig; the user's is never touched."""
        return self.folder / "kubeconfig"

    @property
    def audit(self) -> Path:
        """Folder of the API server's audit log."""
        return self.folder / "audit"

    @property
    def shared(self) -> Path:
        """Folder that is mounted into every node."""
        return self.folder / "shared"

    @property
    def kubectl(self) -> list[str]:
        """The beginning of a kubectl command for this cluster."""
        return [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), "--request-timeout=5s"]

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for programs that talk to the cluster."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECTL": str(self.programs / "kubectl"),
            "DDPJOB_AUDIT_LOG": str(self.audit / AUDIT_LOG),
        }


def cluster_at(programs: Path) -> Cluster:
    """The cluster of this machine."""
    return Cluster(cluster_folder(), programs)


def cluster_folder(name: str = NAME) -> Path:
    """Where the files of a cluster are."""
    return cache_folder() / "cluster" / name


def configuration(cluster: Cluster, image: str, *, ip_family: str) -> dict[str, Any]:
    """Kind's configuration.

    Args:
        cluster: where files of the host are.
        image: node image.
        ip_family: of the addresses of pods and services, as kind names it.
    """
    shared = {"hostPath": str(cluster.shared), "containerPath": str(FOLDER_ON_NODES)}
    policy = "/etc/kubernetes/audit/policy.yaml"
    log = "/var/log/kubernetes/audit"
    audit = {
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": {"audit-policy-file": policy, "audit-log-path": f"{log}/{AUDIT_LOG}"},
            "extraVolumes": [
                {
                    "name": "audit-policy",
                    "hostPath": policy,
                    "mountPath": policy,
                    "readOnly": True,
                    "pathType": "File",
                },
                {"name": "audit-log", "hostPath": log, "mountPath": log, "pathType": "DirectoryOrCreate"},
            ],
        },
        # There is one of each: nobody to agree with twice a second.
        "controllerManager": {"extraArgs": {"leader-elect": "false"}},
        "scheduler": {"extraArgs": {"leader-elect": "false"}},
    }
    control_plane = {
        "role": "control-plane",
        "image": image,
        "extraMounts": [
            shared,
            {
                "hostPath": str(ROOT / "images/kind-node/audit-policy.yaml"),
                "containerPath": policy,
                "readOnly": True,
            },
            {"hostPath": str(cluster.audit), "containerPath": log},
        ],
        "kubeadmConfigPatches": [yaml.safe_dump(audit)],
    }
    worker = {"role": "worker", "image": image, "extraMounts": [shared]}
    # Kind would have it listen at ::1; this machine has 127.0.0.1 whatever its pods have.
    server = {"apiServerAddress": "127.0.0.1"} if ip_family == "ipv6" else {}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"ipFamily": ip_family, **server},
        "nodes": [control_plane, worker, dict(worker)],
    }


def not_ready_nodes(nodes: dict[str, Any]) -> list[str]:
    """Names of the nodes of `kubectl get nodes -o json` that are not Ready."""
    return [
        node["metadata"]["name"]
        for node in nodes["items"]
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    ]


def stopped_nodes(listing: str) -> list[str]:
    """Names of the node containers that do not run; each line of the listing is a name and its status."""
    rows = [line.partition(" ") for line in listing.splitlines() if line.strip()]
    return sorted(name for name, _, status in rows if not status.startswith("Up"))


def _why_useless(engine: Engine, cluster: Cluster) -> str | None:
    arguments = ["ps", "-a", "--filter", f"label=io.x-k8s.kind.cluster={NAME}", "--format", "{{.Names}} {{.Status}}"]
    stopped = stopped_nodes(engine.output(*arguments) or "")
    # Started again they would have other addresses than those in the cluster's certificates and settings.
    return f"stopped: {', '.join(stopped)}" if stopped else why_unwell(cluster, READY_WITHIN_SECONDS)


def why_unwell(cluster: Cluster, within: float) -> str | None:
    """Why the cluster cannot be used, or None where it answers and all nodes become Ready in time."""
    deadline = time.monotonic() + within
    while True:
        why = _unwell_now(cluster)
        if why is None or time.monotonic() > deadline:
            return why
        time.sleep(0.5)


def _unwell_now(cluster: Cluster) -> str | None:
    if output_of([*cluster.kubectl, "get", "--raw", "/readyz"], timeout=10) is None:
        return "its API server does not answer"
    nodes = output_of([*cluster.kubectl, "get", "nodes", "-o", "json"], timeout=10)
    if nodes is None:
        return "its nodes cannot be listed"
    unready = not_ready_nodes(json.loads(nodes))
    return f"not Ready: {', '.join(unready)}" if unready else None


def global_ipv6(addresses: str, bridges: Collection[str]) -> list[str]:
    """Interfaces with a global IPv6 address.

    Args:
        addresses: what `ip -6 -o address show scope global` prints.
        bridges: interfaces that do not count: container engines give their own bridges such addresses.
    """
    interfaces = [line.split()[1] for line in addresses.splitlines() if line.strip()]
    return [interface for interface in interfaces if interface not in bridges]


def has_ipv6() -> bool:
    """Whether this machine has a global IPv6 address, and its kernel can translate them as kube-proxy does."""
    addresses = output_of(["ip", "-6", "-o", "address", "show", "scope", "global"]) or ""
    bridges = [folder.parent.name for folder in Path("/sys/class/net").glob("*/bridge")]
    return bool(global_ipv6(addresses, bridges)) and output_of(["ip6tables", "-t", "nat", "-L", "-n"]) is not None


def ip_family(asked: str | None) -> str:
    """The family of a new cluster's addresses: what DDPJOB_IP_FAMILY asks for, else all that this machine can carry.

    Raises:
        StepError: there is no such family, or this machine has no IPv6.
    """
    if asked is not None and asked not in IP_FAMILIES:
        raise StepError(f"DDPJOB_IP_FAMILY={asked}: must be one of {', '.join(IP_FAMILIES)}")
    if asked == "ipv4":
        return asked
    if has_ipv6():
        return asked or "dual"
    if asked is not None:
        raise StepError(f"DDPJOB_IP_FAMILY={asked}: this machine has no global IPv6 address, or no ip6tables nat table")
    return "ipv4"


def ensure_cluster(engine: Engine, log: Path) -> Cluster:
    """The cluster, well: the one that is there, or a new one.

    Raises:
        StepError: it could not be made; what was half made is removed.
    """
    image = node_image(engine, log)
    programs = programs_folder(log, TOOLS)
    cluster = cluster_at(programs)
    wanted = configuration(cluster, image, ip_family=ip_family(os.environ.get("DDPJOB_IP_FAMILY")))
    marker = cluster.folder / "inputs"
    inputs = hash_of([ROOT / "images/kind-node/audit-policy.yaml"], image, json.dumps(wanted["networking"]))
    if cluster.folder.is_dir() and cluster.kubeconfig.is_file():
        same = marker.is_file() and marker.read_text() == inputs
        why = _why_useless(engine, cluster) if same else "it was created from other images or settings"
        if why is None:
            offer_shared_volumes(cluster.kubectl, cluster.shared, partial(remove_folder, engine), log)
            say(f"cluster: {NAME} is up (KUBECONFIG={cluster.kubeconfig})")
            return cluster
        say(f"cluster: {NAME} cannot be used ({why}); creating it again")
    delete_cluster(engine, cluster, log)
    _create(engine, cluster, wanted, log)
    marker.write_text(inputs)
    forget_older_node_images(engine, image)
    say(f"cluster: {NAME} is up (KUBECONFIG={cluster.kubeconfig})")
    return cluster


def _create(engine: Engine, cluster: Cluster, wanted: dict[str, Any], log: Path) -> None:
    _make_folders(cluster)
    config = cluster.folder / "kind.yaml"
    config.write_text(yaml.safe_dump(wanted))
    command = [str(cluster.programs / "kind"), "create", "cluster", "--name", NAME, "--config", str(config)]
    command += ["--kubeconfig", str(cluster.kubeconfig)]
    try:
        run_step(f"kind create cluster {NAME} (3 nodes)", command, log, env=engine.environment)
        _expect_well(cluster, log)
        offer_shared_volumes(cluster.kubectl, cluster.shared, partial(remove_folder, engine), log)
    except BaseException:
        delete_cluster(engine, cluster, log)
        raise


def _make_folders(cluster: Cluster) -> None:
    cluster.shared.mkdir(parents=True)
    cluster.audit.mkdir()
    # The API server would make it readable for its own user alone, who is not always the one who reads it here.
    (cluster.audit / AUDIT_LOG).touch(mode=0o644)


def _expect_well(cluster: Cluster, log: Path) -> None:
    why = why_unwell(cluster, NEW_READY_WITHIN_SECONDS)
    if why is not None:
        raise StepError(f"the new cluster is not ready after {NEW_READY_WITHIN_SECONDS:.0f} s: {why}; see {log}")


def delete_cluster(engine: Engine, cluster: Cluster, log: Path) -> None:
    """Remove the cluster and its files, whatever state they are in.

    Raises:
        StepError: something cannot be removed.
    """
    kind = cluster.programs / "kind"
    if kind.is_file() and NAME in (output_of([str(kind), "get", "clusters"], env=engine.environment) or "").split():
        scratch = cluster.folder / "kubeconfig"
        command = [str(kind), "delete", "cluster", "--name", NAME, "--kubeconfig", str(scratch)]
        run_step(f"kind delete cluster {NAME}", command, log, env=engine.environment)
    remove_folder(engine, cluster.folder)


def existing_cluster() -> Mapping[str, str]:
    """Variables for the cluster of the current kubectl context, with USE_EXISTING_CLUSTER=1.

    Raises:
        StepError: none answers.
    """
    kubectl = os.environ.get("KUBECTL", "kubectl")
    context = output_of([kubectl, "config", "current-context"])
    if context is None or output_of([kubectl, "--request-timeout=10s", "get", "--raw", "/readyz"]) is None:
        raise StepError("USE_EXISTING_CLUSTER=1, but the current kubectl context does not answer; check KUBECONFIG")
    say(f"cluster: using the current context {context.strip()}, as USE_EXISTING_CLUSTER=1 asks")
    return {}


def main() -> None:
    """Create the cluster, or with --delete remove it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--delete", action="store_true", help="remove the cluster, but not images and network")
    delete = parser.parse_args().delete
    try:
        if os.environ.get("USE_EXISTING_CLUSTER") == "1":
            existing_cluster()
            return
        with only_one("cluster", say):
            engine = choose_engine(LOG)
            if delete:
                delete_cluster(engine, cluster_at(programs_folder(LOG, TOOLS)), LOG)
            else:
                ensure_cluster(engine, LOG)
    except StepError as error:
        main_guard(error)


if __name__ == "__main__":
    main()
