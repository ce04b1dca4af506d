"""The ConfigMap with the launcher: one archive, named after its files, with what the job's launcher needs."""

import base64
import json

import pytest
from world import spec_of

from ddpjob_core.api.launchers import Launcher
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
