"""Jobs from Python."""

from pathlib import Path

import pytest

from ddpjob import DDPJob
from ddpjob_core.api.errors import AlreadyExists, NotFound, TooLong, UsageProblem
from ddpjob_core.api.status import Phase
from tests.apiserver.client.program import DIGITS, config_maps, jobs
from tests.apiserver.controlplane import ApiError, Client, ControlPlane

pytestmark = pytest.mark.timeout(120)


def test_from_python_a_job_is_made_changed_and_removed(
    control_plane: ControlPlane, namespace: str, admin: Client, script: Path
) -> None:
    place = {"namespace": namespace, "kubeconfig": str(control_plane.admin_kubeconfig)}
    job = DDPJob.submit(script, "5", image="i", nodes=2, name="line", env={"A": "1"}, **place)
    assert repr(job) == f"DDPJob('line', namespace='{namespace}', phase='Pending')"
    assert list(config_maps(admin, namespace)) == ["line-program"]
    with pytest.raises(AlreadyExists, match="DDPJob line already exists"):
        DDPJob.submit(script, image="i", name="line", **place)
    with pytest.raises(UsageProblem, match="only while it is suspended"):
        job.scale(3)
    job.suspend()
    job.scale(3)
    job.resume()
    found = DDPJob("line", **place)
    assert found.status.phase is Phase.PENDING
    assert admin.get(f"/apis/ddpjob.dev/v1alpha1/namespaces/{namespace}/ddpjobs/line")["spec"]["nodes"] == 3
    # Nobody works on it: what ends is the patience.
    seen = found.watch(timeout=0.0)
    assert next(seen).phase is Phase.PENDING
    with pytest.raises(TooLong, match="line is still Pending"):
        next(seen)
    job.delete()
    job.delete()
    with pytest.raises(NotFound, match="there is no DDPJob line"):
        DDPJob("line", **place)


def test_from_python_a_block_removes_its_job(control_plane: ControlPlane, namespace: str, admin: Client) -> None:
    place = {"namespace": namespace, "kubeconfig": str(control_plane.admin_kubeconfig)}
    with DDPJob.from_file(DIGITS, **place) as job:
        assert jobs(admin, namespace) == [job.name]
    assert jobs(admin, namespace) == []
    with pytest.raises(ApiError, match="not found"):
        admin.get(f"/apis/ddpjob.dev/v1alpha1/namespaces/{namespace}/ddpjobs/digits")
