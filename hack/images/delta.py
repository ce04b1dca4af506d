"""An image for nodes that have most of its layers already: an archive with those alone that one of them lacks.

A change of the trainer's code is a layer of less than a megabyte on top of a gigabyte of torch, and a node takes half a
minute to read the whole.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"


def chain_ids(layers: Sequence[str]) -> list[str]:
    """What containerd calls the file systems after each layer, as the OCI image specification defines it."""
    chain: list[str] = []
    for layer in layers:
        chain.append(_digest(f"{chain[-1]} {layer}".encode()) if chain else layer)
    return chain


def lacking_layers(layers: Sequence[str], snapshots: Iterable[str]) -> set[str]:
    """The layers that at least one node needs.

    Args:
        layers: digests of the image's layers, the lowest first.
        snapshots: for each node the output of `ctr snapshots ls`.
    """
    chain = chain_ids(layers)
    lacking: set[str] = set()
    for listing in snapshots:
        there = {line.split()[0] for line in listing.splitlines() if line.strip()}
        lacking |= {layer for layer, name in zip(layers, chain, strict=True) if name not in there}
    return lacking


def layers_of(archive: Path) -> list[str]:
    """Digests of the layers of the image in an archive that `podman save` or `docker save` wrote."""
    with tarfile.open(archive) as source:
        _, config = _description(source)
    layers: list[str] = json.loads(config)["rootfs"]["diff_ids"]
    return layers


def write_delta(archive: Path, target: Path, names: Sequence[str], lacking: set[str]) -> None:
    """Write an OCI archive of an image in which only some of the layers are present.

    Args:
        archive: what `podman save` or `docker save` wrote.
        target: the archive to write.
        names: the image's names.
        lacking: digests of the layers to put in.
    """
    with tarfile.open(archive) as source, tarfile.open(target, "w") as result:
        paths, config = _description(source)
        layers = json.loads(config)["rootfs"]["diff_ids"]
        described = []
        for layer, path in zip(layers, paths, strict=True):
            content = source.extractfile(path)
            if content is None:
                raise tarfile.TarError(f"{path} in {archive} is not a file")
            size = content.seek(0, io.SEEK_END)
            described.append({"mediaType": _LAYER, "digest": layer, "size": size})
            if layer in lacking:
                content.seek(0)
                entry = tarfile.TarInfo(_blob(layer))
                entry.size = size
                result.addfile(entry, content)
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "digest": _digest(config), "size": len(config)},
                "layers": described,
            }
        ).encode()
        for content_bytes in (config, manifest):
            _add(result, _blob(_digest(content_bytes)), content_bytes)
        _add(result, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(result, "index.json", json.dumps(_index(manifest, names)).encode())


def _index(manifest: bytes, names: Sequence[str]) -> dict[str, Any]:
    one = {"mediaType": _MANIFEST, "digest": _digest(manifest), "size": len(manifest)}
    return {
        "schemaVersion": 2,
        "manifests": [{**one, "annotations": {"io.containerd.image.name": name}} for name in names],
    }


def _description(source: tarfile.TarFile) -> tuple[list[str], bytes]:
    """Paths of the layers, and the configuration, of the one image in an archive."""
    image = json.loads(_read(source, "manifest.json"))[0]
    return image["Layers"], _read(source, image["Config"])


def _read(source: tarfile.TarFile, path: str) -> bytes:
    content = source.extractfile(path)
    if content is None:
        raise tarfile.TarError(f"{path} is not a file")
    return content.read()


def _add(result: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    result.addfile(entry, io.BytesIO(content))


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
