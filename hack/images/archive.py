"""An image as a file, in the layout of OCI: its bytes depend on the image and its name alone."""

import json
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from hack.cluster.engine import Engine
from hack.console import StepError, say

_NAME: Final = "org.opencontainers.image.ref.name"
_INDEX: Final = "index.json"
_PLAIN: Final = 0o644
_SECONDS: Final = 600


def save_archive(engine: Engine, reference: str, name: str, path: Path) -> None:
    """Save an image as a file, which podman, skopeo and others load and push.

    Args:
        engine: podman, which has the image.
        reference: what the engine finds it by.
        name: its name in the file.
        path: of the file.

    Raises:
        StepError: the engine cannot save it.
    """
    say(f"release: image {name}")
    with tempfile.TemporaryDirectory(prefix=".image-", dir=path.parent) as work:
        folder = Path(work) / "image"
        command = ("save", "--quiet", "--format=oci-dir", "-o", str(folder), reference)
        if engine.output(*command, timeout=_SECONDS) is None:
            raise StepError(f"{engine.program} cannot save {reference}")
        rename(folder, name)
        pack(folder, path)


def rename(folder: Path, name: str) -> None:
    """Call the one image of a folder in the layout of OCI by another name."""
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    (manifest,) = index["manifests"]
    manifest["annotations"] = {_NAME: name}
    (folder / _INDEX).write_text(json.dumps(index, sort_keys=True), encoding="utf-8")


def pack(folder: Path, path: Path) -> None:
    """Pack all files of a folder into a .tar, in the order of their names, of no time and owned by root."""
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            member = tarfile.TarInfo(file.relative_to(folder).as_posix())
            member.size, member.mode = file.stat().st_size, _PLAIN
            member.uname = member.gname = "root"
            with file.open("rb") as content:
                archive.addfile(member, content)
