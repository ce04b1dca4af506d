"""All files of a release: twice the same, and taken by the API server."""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.project import project_version
from hack.release.build import CHECKSUMS, build_release
from hack.release.install import install_file
from hack.release.settings import Release
from hack.release.sources import tracked_files, unpack
from tests.apiserver.chart.helm import comparable, kustomized, loaded
from tests.apiserver.controlplane import CRD, NAMESPACE, ROOT, ControlPlane, Json

VERSION = project_version()
RELEASE = Release(VERSION, 1_700_000_000, registry="registry.example/team", url="https://releases.example")
FILES = {
    "SHA256SUMS",
    f"ddpjob-{VERSION}-py3-none-any.whl",
    f"ddpjob-{VERSION}.cdx.json",
    f"ddpjob-{VERSION}.tar.gz",
    f"ddpjob-chart-{VERSION}.tgz",
    "install.yaml",
    f"kubectl-ddpjob-{VERSION}.tar.gz",
    "plugins/ddpjob.yaml",
}
ARCHIVES = {f"ddpjob-operator-{VERSION}.oci.tar"}
SBOMS = {f"ddpjob-operator-{VERSION}.cdx.json": "of the operator\n"}


@pytest.fixture(scope="session")
def kubectl(assets: Path) -> Path:
    return assets / "kubectl"


@pytest.fixture(scope="session")
def installation(kubectl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """install.yaml."""
    folder = tmp_path_factory.mktemp("installation")
    unpack(tracked_files(ROOT), folder / "sources")
    path = folder / "install.yaml"
    path.write_text(install_file(folder / "sources", kubectl, RELEASE))
    return path


@contextlib.contextmanager
def other_umask() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def digests(folder: Path, names: list[str]) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def images(folder: Path) -> Path:
    """A folder with what stands for images, which a release takes from there."""
    made = folder / "images"
    made.mkdir(exist_ok=True)
    for name in ARCHIVES:
        (made / name).write_bytes(b"an image")
    return made


def test_two_runs_in_other_folders_time_zones_and_umasks_make_the_same_bytes(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tracked_files(ROOT)
    one = tmp_path / "one"
    names = build_release(files, RELEASE, kubectl, one, SBOMS, archives=images(tmp_path))
    assert set(names) == FILES | SBOMS.keys() | ARCHIVES
    listed = [line.split("  ") for line in (one / CHECKSUMS).read_text().splitlines()]
    assert {name: digest for digest, name in listed} == digests(one, [name for name in names if name != CHECKSUMS])
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.chdir(tmp_path)
    two = tmp_path / "another/folder/two"
    two.mkdir(parents=True)
    (two / "ddpjob-0.0.1.tar.gz").write_text("an older release")
    with other_umask():
        again = dict(reversed(files.items()))
        assert build_release(again, RELEASE, kubectl, two, SBOMS, archives=images(tmp_path)) == names
    assert digests(two, names) == digests(one, names)
    # The older release is gone, and nothing is left of the work.
    assert {path.relative_to(two.parent).as_posix() for path in two.parent.rglob("*") if path.is_file()} == {
        f"two/{name}" for name in names
    }


def test_install_yaml_has_the_objects_of_the_manifests_with_the_image_of_the_release(
    kubectl: Path, installation: Path
) -> None:
    made = loaded(installation.read_text())
    wanted = [yaml.safe_load(CRD.read_text()), *kustomized(kubectl, "base")]
    (deployment,) = (each for each in wanted if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["image"] = f"registry.example/team/ddpjob-operator:{VERSION}"
    assert comparable(made) == comparable(wanted)


def test_the_api_server_takes_install_yaml(kubectl: Path, installation: Path, control_plane: ControlPlane) -> None:
    # What other tests share stays as it is.
    command = [str(kubectl), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(installation)]
    environment = {**os.environ, "KUBECONFIG": str(control_plane.admin_kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    objects: list[Json] = loaded(installation.read_text())
    assert len(done.stdout.splitlines()) == len(objects)
    assert NAMESPACE in {each["metadata"].get("namespace") for each in objects}
