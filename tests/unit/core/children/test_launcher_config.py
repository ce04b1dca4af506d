"""The ConfigMap with the launcher: one archive, named after its bytes, with what the job's launcher needs."""

import base64
import io
import json
import zipfile
from collections.abc import Iterator

import pytest
from world import spec_of

from ddpjob_core.api.launchers import Launcher
from ddpjob_core.children import launcher_config
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE, archive


def job_of(launcher: Launcher) -> JobRecord:
    spec = spec_of(nodes=2, launcher=launcher.value)
    return JobRecord(
        namespace="ml", name="digits", uid="job-uid", resource_version="1", generation=1, deleting=False, spec=spec
    )


@pytest.mark.parametrize("launcher", Launcher)
def test_the_pods_mount_the_archive_of_their_launcher(launcher: Launcher) -> None:
    job = job_of(launcher)
    assert job.spec is not None
    config, pod = build_launcher(job, job.spec), build_pod(job, job.spec, 0, 1)
    assert {name: base64.b64decode(text) for name, text in config["binaryData"].items()} == {
        FILE: archive(launcher.traits.module)
    }
    assert config["immutable"] is True
    (volume,) = [volume for volume in pod["spec"]["volumes"] if "configMap" in volume]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
    assert container["command"] == ["python3", f"{mount['mountPath']}/{FILE}"]
    # 78 KB per job is what the sources would take.
    assert len(json.dumps(config)) < 36_000


@pytest.fixture
def another_zlib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pack the same files into other bytes, as another version of zlib does."""

    def repacked(module: str) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(archive(module))) as packed, zipfile.ZipFile(buffer, "w") as other:
            for entry in packed.infolist():
                other.writestr(entry, packed.read(entry), compresslevel=1)
        return buffer.getvalue()

    monkeypatch.setattr(launcher_config, "archive", repacked)
    launcher_config._packed.cache_clear()
    yield
    launcher_config._packed.cache_clear()


def test_an_operator_that_packs_other_bytes_gives_them_another_name(request: pytest.FixtureRequest) -> None:
    # Under the same name, the next attempt of a running job would find what its operator has not made.
    job = job_of(Launcher.TORCHRUN)
    assert job.spec is not None
    before = build_launcher(job, job.spec)
    assert build_launcher(job, job.spec)["metadata"]["name"] == before["metadata"]["name"]
    request.getfixturevalue("another_zlib")
    after = build_launcher(job, job.spec)
    assert after["binaryData"] != before["binaryData"]
    assert after["metadata"]["name"] != before["metadata"]["name"]
