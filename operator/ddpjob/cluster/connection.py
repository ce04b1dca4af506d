"""The cluster and the user's credentials, found as kubectl does."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.transport import Transport
from ddpjob_core.api.errors import Unavailable, UsageProblem

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster and a namespace; what is None comes from the kubeconfig, as with kubectl."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


def open_cluster(target: Target) -> Cluster:
    """The cluster that a user means.

    Raises:
        Unavailable: there is no kubeconfig, and this is not a pod.
        UsageProblem: the kubeconfig cannot be read or has no such context.
    """
    path = _path(target)
    configuration = Configuration()
    # One clear error instead of minutes of retries.
    configuration.retries = False
    if path is None:
        namespace = _in_cluster(configuration)
        context = "in-cluster"
    else:
        context, namespace = _from_file(configuration, path, target.context)
    return Cluster(
        Transport(ApiClient(configuration), str(configuration.host).rstrip("/")),
        namespace=target.namespace or namespace,
        context=context,
    )


def _path(target: Target) -> str | None:
    """The kubeconfig, None for the service account of this pod."""
    named = target.kubeconfig or os.environ.get("KUBECONFIG")
    path = named or str(Path.home() / ".kube" / "config")
    if any(Path(part).expanduser().exists() for part in path.split(os.pathsep) if part):
        return path
    if not named and target.context is None and (_ACCOUNT / "token").exists():
        return None
    raise Unavailable(
        f"no cluster to connect to: {path} does not exist",
        "pass --kubeconfig FILE, or set KUBECONFIG",
    )


def _in_cluster(configuration: Configuration) -> str:
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise Unavailable(f"this pod's service account cannot be used: {error}") from error
    return (_ACCOUNT / "namespace").read_text().strip() or "default"


def _from_file(configuration: Configuration, path: str, context: str | None) -> tuple[str, str]:
    """The name of the context, and its namespace."""
    try:
        merged = KubeConfigMerger(path)  # type: ignore[no-untyped-call]
        if merged.config is None:
            raise UsageProblem(f"the kubeconfig {path} is empty", "kubectl config view shows its content")
        contexts = [entry.value["name"] for entry in merged.config.value.get("contexts") or []]
        if context is not None and context not in contexts:
            raise UsageProblem(
                f"the kubeconfig {path} has no context {context!r}",
                f"choose one of: {', '.join(sorted(contexts))}" if contexts else "it has no contexts",
            )
        # Relative paths of certificates are relative to the file that names them.
        loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
            config_dict=merged.config, config_base_path=None, active_context=context
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageProblem(
            f"the kubeconfig {path} cannot be used: {error}", "kubectl config view shows its content"
        ) from error
    chosen: dict[str, Any] = loader.current_context
    return str(chosen["name"]), str(chosen["context"].get("namespace") or "default")
