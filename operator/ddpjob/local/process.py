"""What a pod's container becomes on this machine: a command, its environment and its folder."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddpjob.local.errors import LocalError
from ddpjob.local.network import LOOPBACK, Network, node_address
from ddpjob.local.volumes import Mount, here
from ddpjob_core.api.constants import TRAINER_CONTAINER, is_reserved_env
from ddpjob_core.children.pod import LAUNCHER_FOLDER
from ddpjob_core.children.processes import gpus_of
from ddpjob_launcher.archive import FILE

POD_VARIABLE: Final = "DDPJOB_LOCAL_POD"
"""Holds `mark_of` in every process of a pod, so that those that outlive their parents are found."""


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process to start; `environment` is its whole environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has.

    Attributes:
        python: the interpreter that trains.
        launcher: file of the launcher.
        environment: of this process, which programs inherit as they would inherit an image's.
        folder: what relative paths are relative to.
        gpus: indices of the GPUs that may be used.
        loopback: name of the loopback interface.
    """

    python: str
    launcher: Path
    environment: Mapping[str, str]
    folder: Path
    gpus: tuple[str, ...]
    loopback: str


def mark_of(pod: Mapping[str, Any]) -> str:
    """What marks the processes of a pod; it begins with its job's uid."""
    metadata = pod["metadata"]
    return f"{metadata['ownerReferences'][0]['uid']}/{metadata['uid']}"


def trainer_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that trains."""
    containers: Sequence[Mapping[str, Any]] = pod["spec"]["containers"]
    return next(container for container in containers if container["name"] == TRAINER_CONTAINER)


def process_of(
    pod: Mapping[str, Any],
    ordinal: int,
    *,
    network: Network,
    mounts: Sequence[Mount],
    machine: Machine,
    termination_log: Path,
    config_maps: Mapping[str, Mapping[str, str]],
) -> LocalProcess:
    """The process of a pod.

    Args:
        pod: its manifest, with the uid.
        ordinal: which node it is.
        network: addresses and ports of the job.
        mounts: of its container.
        machine: where it runs.
        termination_log: file of the container's termination message.
        config_maps: data of the ConfigMaps in the manifest, by name.

    Raises:
        LocalError: part of it needs a cluster.
    """
    container = trainer_container(pod)
    command = [here(text, mounts) for text in container.get("command") or []]
    if not command:
        raise LocalError(
            "spec.trainer: without a cluster the entrypoint of the image cannot run: set spec.trainer.command"
        )
    if container["command"] == ["python3", f"{LAUNCHER_FOLDER}/{FILE}"]:
        command = [machine.python, str(machine.launcher)]
    given = _from_config_maps(container.get("envFrom") or [], config_maps)
    given |= _variables(pod, container.get("env") or [], given, config_maps)
    inherited = {name: value for name, value in machine.environment.items() if not is_reserved_env(name)}
    environment = {
        # Collectives within one machine need no other interface, and on some machines no other one works.
        "GLOO_SOCKET_IFNAME": machine.loopback,
        "NCCL_SOCKET_IFNAME": machine.loopback,
        **inherited,
        **_gpus(container, ordinal, machine),
        **{name: here(value, mounts) for name, value in given.items()},
        **_own(given, ordinal, network),
        "DDPJOB_TERMINATION_LOG": str(termination_log),
        "DDPJOB_LOCAL": "1",
        POD_VARIABLE: mark_of(pod),
        "PYTHONUNBUFFERED": "1",
    }
    arguments = [_expanded(here(text, mounts), environment) for text in container.get("args") or []]
    return LocalProcess((*command, *arguments), environment, _folder(container, mounts, machine))


def _own(given: Mapping[str, str], ordinal: int, network: Network) -> dict[str, str]:
    """The operator's variables that hold names and ports, with those of this machine."""
    port = str(network.rendezvous_port)
    ours = {
        "DDPJOB_RENDEZVOUS_HOST": LOOPBACK,
        "DDPJOB_RENDEZVOUS_PORT": port,
        "DDPJOB_METRICS_PORT": str(network.node_metrics_port(ordinal)),
        "PET_LOCAL_ADDR": node_address(ordinal),
        "PET_RDZV_ENDPOINT": f"{LOOPBACK}:{port}",
        "PET_MASTER_ADDR": LOOPBACK,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": port,
    }
    return {name: value for name, value in ours.items() if name in given}


def _variables(
    pod: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    before: Mapping[str, str],
    config_maps: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    known = dict(before)
    for entry in entries:
        name, source = entry["name"], entry.get("valueFrom")
        if source is None:
            known[name] = _expanded(str(entry.get("value") or ""), known)
            continue
        value = _value_from(pod, name, source, config_maps)
        if value is not None:
            known[name] = value
    return known


def _value_from(
    pod: Mapping[str, Any], name: str, source: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]
) -> str | None:
    metadata = pod["metadata"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "status.podIP": LOOPBACK,
    }
    field = (source.get("fieldRef") or {}).get("fieldPath")
    if field in fields:
        return str(fields[field])
    key = source.get("configMapKeyRef") or {}
    data = config_maps.get(str(key.get("name")))
    if data is not None and key.get("key") in data:
        return data[key["key"]]
    if any((each or {}).get("optional") for each in source.values() if isinstance(each, Mapping)):
        return None
    raise LocalError(
        f"spec.trainer.env: the value of {name} comes from a cluster ({', '.join(source)}): set `value`, "
        "or add its ConfigMap to the same file"
    )


def _from_config_maps(
    sources: Sequence[Mapping[str, Any]], config_maps: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in sources:
        reference = source.get("configMapRef") or source.get("secretRef") or {}
        data = config_maps.get(str(reference.get("name"))) if "configMapRef" in source else None
        if data is None and not reference.get("optional"):
            raise LocalError(
                f"spec.trainer.envFrom: {reference.get('name')} is in a cluster: "
                "add a ConfigMap of that name to the same file, or set the variables in spec.trainer.env"
            )
        found.update({f"{source.get('prefix', '')}{name}": value for name, value in (data or {}).items()})
    return found


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """$(NAME) as the kubelet expands it: an unknown name stays as it is, $$(NAME) is a literal one."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        return known.get(match[1], match[0])

    return re.sub(r"\$?\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)


def _gpus(container: Mapping[str, Any], ordinal: int, machine: Machine) -> dict[str, str]:
    count = gpus_of(container.get("resources") or {}, cuda=True)
    if not count:
        return {}
    first = ordinal * count
    if first + count > len(machine.gpus):
        raise LocalError(
            f"spec.trainer.resources: node {ordinal} requests {count} GPUs of its own, and this machine has "
            f"{len(machine.gpus)} for all nodes: request fewer, or use fewer nodes"
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(machine.gpus[first : first + count])}


def _folder(container: Mapping[str, Any], mounts: Sequence[Mount], machine: Machine) -> Path:
    asked = container.get("workingDir")
    if not asked:
        return machine.folder
    path = here(str(asked), mounts)
    found = Path(path)
    # Below a mount it is created, as in a container, but not on this machine's own folders.
    own = any(mount.of_machine and found.is_relative_to(mount.place) for mount in mounts)
    if (own or path == str(asked)) and not found.is_dir():
        raise LocalError(
            f"spec.trainer.workingDir: {found} is not a folder on this machine: leave it out, or create it"
        )
    return found
