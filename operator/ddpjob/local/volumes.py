"""The volumes of a pod as folders of this machine, and the paths of a container as paths here."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddpjob.children.pod import LAUNCHER_VOLUME, SHARED_MEMORY_VOLUME
from ddpjob.local.errors import LocalError

_OWN: Final = (LAUNCHER_VOLUME, SHARED_MEMORY_VOLUME)


@dataclass(frozen=True, slots=True)
class Mount:
    """A path inside the container and the folder that stands for it, with the files that are put there first."""

    path: str
    folder: Path
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of this machine: `claims` has one for each claim, `pod` is the pod's own."""

    claims: Path
    pod: Path


def mounts_of(
    pod: Mapping[str, Any], container: Mapping[str, Any], places: Places, config_maps: Mapping[str, Mapping[str, str]]
) -> tuple[Mount, ...]:
    """The mounts of a container.

    Args:
        pod: the pod's manifest.
        container: one of its containers.
        places: where folders are made.
        config_maps: data of the ConfigMaps that the user gave along, by name.

    Raises:
        LocalError: a volume needs a cluster.
    """
    volumes = {volume.get("name"): volume for volume in pod["spec"].get("volumes") or []}
    return tuple(
        _mount(mount, volumes.get(mount["name"]) or {}, places, config_maps)
        for mount in container.get("volumeMounts") or []
        if mount.get("name") not in _OWN
    )


def _mount(
    mount: Mapping[str, Any],
    volume: Mapping[str, Any],
    places: Places,
    config_maps: Mapping[str, Mapping[str, str]],
) -> Mount:
    name, path = str(mount["name"]), str(mount["mountPath"]).rstrip("/")
    kind = next((key for key in volume if key != "name"), None)
    where = f"spec.template.spec.volumes: {name}"
    files: Mapping[str, str] = {}
    match kind:
        case "persistentVolumeClaim":
            folder = places.claims / str(volume[kind]["claimName"])
        case "hostPath":
            folder = Path(volume[kind]["path"])
        case "emptyDir":
            folder = places.pod / "volumes" / name
        case "configMap":
            wanted = str(volume[kind].get("name"))
            if wanted not in config_maps:
                raise LocalError(
                    f"{where}: there is no ConfigMap {wanted} without a cluster: give it in the same file, behind ---"
                )
            folder, files = places.pod / "volumes" / name, config_maps[wanted]
        case None:
            raise LocalError(f"spec.trainer.volumeMounts: there is no volume {name}: add it to {where}")
        case _:
            raise LocalError(
                f"{where}: a volume of the kind {kind} needs a cluster; "
                "emptyDir, hostPath, persistentVolumeClaim and configMap do not"
            )
    return Mount(path, folder / str(mount.get("subPath") or ""), files)


def make_folders(mounts: Sequence[Mount]) -> None:
    """Have the folders of these mounts, with their files.

    Raises:
        LocalError: a folder cannot be made.
    """
    for mount in mounts:
        try:
            mount.folder.mkdir(parents=True, exist_ok=True)
            for name, text in mount.files.items():
                (mount.folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{mount.path} cannot be had: {error}") from error


def here(text: str, mounts: Sequence[Mount]) -> str:
    """A text in which a path below a mount, alone or behind `=`, is the one on this machine."""
    name, equals, value = text.partition("=")
    if equals and name.startswith("-"):
        return f"{name}={here(value, mounts)}"
    # The deepest mount that holds the path, as in a container.
    for mount in sorted(mounts, key=lambda mount: len(mount.path), reverse=True):
        if text == mount.path or text.startswith(f"{mount.path}/"):
            return os.fspath(mount.folder) + text[len(mount.path) :]
    return text
