"""The volumes of a pod as folders on this machine, and the paths of a container as paths here."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ddpjob.local.errors import LocalError
from ddpjob_core.api.constants import LAUNCHER_VOLUME
from ddpjob_core.children.pod import SHARED_MEMORY_VOLUME

_OWN: Final = (LAUNCHER_VOLUME, SHARED_MEMORY_VOLUME)
_CLAIM: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_VOLUME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KEY: Final = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]+")


@dataclass(frozen=True, slots=True)
class Mount:
    """A path inside the container and what replaces it here.

    Attributes:
        path: inside the container.
        volume: the folder of the volume, or the file that is the volume.
        sub_path: the part of the volume that is mounted, "" for all of it.
        files: contents of files that are first written to the volume, by their paths in it.
        of_machine: the field that names it, for a folder or file of this machine, which must exist; else "".
    """

    path: str
    volume: Path
    sub_path: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    of_machine: str = ""

    @property
    def place(self) -> Path:
        """The folder or file that replaces the path."""
        return self.volume / self.sub_path


@dataclass(frozen=True, slots=True)
class Places:
    """Folders on this machine: `claims` holds one for each claim, `pod` is the pod's own."""

    claims: Path
    pod: Path


def mounts_of(
    pod: Mapping[str, Any], container: Mapping[str, Any], places: Places, config_maps: Mapping[str, Mapping[str, str]]
) -> tuple[Mount, ...]:
    """The mounts of a container.

    Args:
        pod: the pod's manifest.
        container: one of its containers.
        places: where folders are created.
        config_maps: data of the ConfigMaps in the manifest, by name.

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
    if not _VOLUME.fullmatch(name):
        raise LocalError(f"{where} is not a valid name of a volume")
    match kind:
        case "persistentVolumeClaim":
            claim = str(volume[kind]["claimName"])
            if not _CLAIM.fullmatch(claim):
                raise LocalError(f"{where}: {claim} is not a valid name of a claim")
            folder = places.claims / claim
        case "hostPath":
            folder = Path(volume[kind]["path"])
        case "emptyDir":
            folder = places.pod / "volumes" / name
        case "configMap":
            folder, files = places.pod / "volumes" / name, _files(volume[kind], where, config_maps)
        case None:
            raise LocalError(f"spec.trainer.volumeMounts: the volume {name} does not exist: add it to {where}")
        case _:
            raise LocalError(
                f"{where}: a volume of kind {kind} needs a cluster; "
                "emptyDir, hostPath, persistentVolumeClaim and configMap do not"
            )
    of_machine = where if kind == "hostPath" else ""
    return Mount(path, folder, _inside(str(mount.get("subPath") or ""), where), files, of_machine)


def _files(source: Mapping[str, Any], where: str, config_maps: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """The files of a ConfigMap, by their paths in the volume."""
    wanted, optional = str(source.get("name")), bool(source.get("optional"))
    data = config_maps.get(wanted)
    if data is None:
        if optional:
            return {}
        raise LocalError(
            f"{where}: without a cluster the ConfigMap {wanted} must be in the same file: add it after ---"
        )
    for key in data:
        if not _KEY.fullmatch(key):
            raise LocalError(f"{where}: {key} is not a valid key of a ConfigMap")
    items = source.get("items")
    if not items:
        return data
    missing = [str(item["key"]) for item in items if item["key"] not in data]
    if missing and not optional:
        raise LocalError(f"{where}: the ConfigMap {wanted} has no key {missing[0]}")
    return {_inside(str(item["path"]), where): data[item["key"]] for item in items if item["key"] in data}


def _inside(path: str, where: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise LocalError(f"{where}: {path} is outside the volume")
    return path


def make_folders(mounts: Sequence[Mount]) -> None:
    """Create the folders of these mounts, with their files.

    Raises:
        LocalError: a folder cannot be created, or one of this machine does not exist.
    """
    for mount in mounts:
        if mount.of_machine and not mount.place.exists():
            raise LocalError(
                f"{mount.of_machine}: {mount.place} does not exist on this machine: create it, "
                "or use an emptyDir or a persistentVolumeClaim"
            )
        # A program that ran there before may have left a link.
        if not mount.place.resolve().is_relative_to(mount.volume.resolve()):
            raise LocalError(f"spec.trainer.volumeMounts: {mount.sub_path} is outside the volume")
        try:
            for name, text in mount.files.items():
                file = mount.volume / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            if not mount.place.exists():
                mount.place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"cannot create {mount.path}: {error}") from error


def here(text: str, mounts: Sequence[Mount]) -> str:
    """The text with a path below a mount, alone or after `=`, replaced by the path on this machine.

    A path that goes up is not one below a mount.
    """
    name, equals, value = text.partition("=")
    if equals and name.startswith("-"):
        return f"{name}={here(value, mounts)}"
    if ".." in text.split("/"):
        return text
    # The deepest mount that holds the path, as in a container.
    for mount in sorted(mounts, key=lambda mount: len(mount.path), reverse=True):
        if text == mount.path or text.startswith(f"{mount.path}/"):
            return os.fspath(mount.place) + text[len(mount.path) :]
    return text
