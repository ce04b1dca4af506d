import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from hack.images.delta import chain_ids, lacking_layers, layers_of, write_delta

BASE, CODE = b"a gigabyte of torch", b"a few kilobytes of code"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


LAYERS = [digest(BASE), digest(CODE)]
CONFIG = json.dumps({"rootfs": {"type": "layers", "diff_ids": LAYERS}}).encode()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "image.tar"
    manifest = [{"Config": "config.json", "RepoTags": ["x:y"], "Layers": ["base.tar", "code.tar"]}]
    files = {"base.tar": BASE, "code.tar": CODE, "config.json": CONFIG, "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, "w") as result:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            result.addfile(entry, io.BytesIO(content))
    return path


def test_a_chain_id_is_that_of_the_image_specification() -> None:
    assert chain_ids(LAYERS) == [LAYERS[0], digest(f"{LAYERS[0]} {LAYERS[1]}".encode())]
    assert chain_ids([]) == []


def test_a_layer_is_lacking_if_one_node_has_not_this_layer_on_these_below_it() -> None:
    first, second = chain_ids(LAYERS)
    both = f"KEY PARENT KIND\n{first}  Committed\n{second} {first} Committed\n"
    assert lacking_layers(LAYERS, [both, both]) == set()
    assert lacking_layers(LAYERS, [both, f"KEY PARENT KIND\n{first}  Committed\n"]) == {LAYERS[1]}
    assert lacking_layers(LAYERS, ["KEY PARENT KIND\n"]) == set(LAYERS)
    other = f"KEY PARENT KIND\n{first}  Committed\n{LAYERS[1]}  Committed\n"
    assert lacking_layers(LAYERS, [other]) == {LAYERS[1]}, "the same layer on another one is another file system"


def test_a_delta_describes_all_layers_and_holds_those_that_are_lacking(archive: Path, tmp_path: Path) -> None:
    assert layers_of(archive) == LAYERS
    delta = tmp_path / "delta.tar"
    write_delta(archive, delta, ["library/x:1-key", "library/x:1"], {LAYERS[1]})
    with tarfile.open(delta) as result:
        contents = {name: file.read() for name in result.getnames() if (file := result.extractfile(name))}
    index = json.loads(contents["index.json"])["manifests"]
    assert [entry["annotations"]["io.containerd.image.name"] for entry in index] == ["library/x:1-key", "library/x:1"]
    assert len({entry["digest"] for entry in index}) == 1
    blobs = {name: content for name, content in contents.items() if name.startswith("blobs/")}
    assert all(digest(content) == name.removeprefix("blobs/").replace("/", ":") for name, content in blobs.items())
    manifest = json.loads(blobs["blobs/" + index[0]["digest"].replace(":", "/")])
    assert [(layer["digest"], layer["size"]) for layer in manifest["layers"]] == [
        (LAYERS[0], len(BASE)),
        (LAYERS[1], len(CODE)),
    ]
    assert blobs["blobs/" + manifest["config"]["digest"].replace(":", "/")] == CONFIG
    assert CODE in blobs.values()
    assert BASE not in blobs.values()


def test_the_same_image_has_the_same_digest_whatever_is_lacking(archive: Path, tmp_path: Path) -> None:
    def manifest_digest(lacking: set[str]) -> str:
        write_delta(archive, tmp_path / "delta.tar", ["x"], lacking)
        with tarfile.open(tmp_path / "delta.tar") as result:
            index = result.extractfile("index.json")
            assert index is not None
            return str(json.loads(index.read())["manifests"][0]["digest"])

    assert manifest_digest(set()) == manifest_digest(set(LAYERS))
