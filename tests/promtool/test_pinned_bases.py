"""An image whose base is pinned, built by the container engine of this machine from a registry on this machine."""

import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.checks.promtool import Promtool
from hack.cluster.engine import Engine, Source
from hack.console import StepError
from hack.images.bases import Lock, written
from hack.images.build import build_images
from hack.images.image import Image
from hack.images.registry import digest_of, reference
from tests.apiserver.chart.registry import Registry, serving

REPOSITORY, TAG = "library/base", "1"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"

pytestmark = pytest.mark.timeout(600)


def push(registry: Registry, says: str) -> str:
    """Have the tag point to an image with one file; its digest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("which")
        member.size = len(says)
        archive.addfile(member, io.BytesIO(says.encode()))
    layer = buffer.getvalue()
    rootfs = {"type": "layers", "diff_ids": [digest(layer)]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    for blob in (layer, config):
        registry.blobs[digest(blob)] = blob
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
        "layers": [{"mediaType": LAYER, "digest": digest(layer), "size": len(layer)}],
    }
    return registry.put_manifest(REPOSITORY, TAG, MANIFEST, json.dumps(manifest).encode())


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclasses.dataclass(frozen=True)
class Bench:
    """An image that is built from a base in a registry."""

    registry: Registry
    engine: Engine
    folder: Path
    image: Image

    @property
    def base(self) -> str:
        return f"{self.registry.host}/{REPOSITORY}:{TAG}"

    def built(self, lock: Lock) -> tuple[str, str]:
        """The name with the key, and what the file from the base says."""
        path = self.folder / "bases.lock.yaml"
        path.write_text(written(lock))
        (keyed,) = build_images(self.engine, self.folder / "log", [self.image], path).values()
        container = (self.engine.output("create", "--pull=never", keyed, "/which") or "").strip()
        self.engine.output("cp", f"{container}:/which", str(self.folder / "which"))
        self.engine.output("rm", container)
        return keyed, (self.folder / "which").read_text()


@pytest.fixture
def bench(promtool: Promtool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    engine = dataclasses.replace(promtool.engine, source=Source.REGISTRY)
    with serving() as registry:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{registry.host}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
        dockerfile = tmp_path / "Dockerfile"
        dockerfile.write_text(f"FROM {registry.host}/{REPOSITORY}:{TAG}\nLABEL ddpjob.dev/test=pinned\n")
        image = Image("ddpjob-pinned-base:test", str(dockerfile), "", "")
        yield Bench(registry, engine, tmp_path, image)
        # What was pulled by its digest has no tag.
        listed = (engine.output("images", "--format", "{{.Repository}} {{.ID}}") or "").splitlines()
        own = ("ddpjob-pinned-base", registry.host)
        engine.output("image", "rm", "--force", *{row.split()[1] for row in listed if any(name in row for name in own)})


def test_a_pinned_base_stays_what_it_was_when_its_tag_moves_on(bench: Bench) -> None:
    push(bench.registry, "older")
    lock = Lock({bench.base: digest_of(reference(bench.base))})
    push(bench.registry, "newer")
    first, says = bench.built(lock)
    assert says == "older"
    assert bench.built(lock) == (first, "older")
    # With another base it is another image; the name of the older one must not pass for it.
    second, says = bench.built(Lock({bench.base: digest_of(reference(bench.base))}))
    assert says == "newer"
    assert second != first


def test_a_build_says_once_which_bases_are_not_pinned_and_how_to_pin_them(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    key = push(bench.registry, "any")
    bench.built(Lock())
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "not pinned" in line)
    assert bench.base in line
    assert ".venv/bin/python -m hack.images.pin" in line
    bench.built(Lock({bench.base: key}))
    assert "not pinned" not in capsys.readouterr().out


def test_a_base_that_its_registry_no_longer_has_fails_the_build(bench: Bench) -> None:
    push(bench.registry, "any")
    with pytest.raises(StepError, match="pulling"):
        bench.built(Lock({bench.base: digest(b"gone")}))


def test_where_bases_are_made_of_debians_packages_the_lock_changes_nothing(
    promtool: Promtool, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    push(bench.registry, "any")
    made_here = dataclasses.replace(bench, engine=dataclasses.replace(promtool.engine, source=Source.BUILD))
    plain = made_here.built(Lock())
    assert made_here.built(Lock({bench.base: digest(b"gone")}, "20261101T000000Z")) == plain
    assert "not pinned" not in capsys.readouterr().out
