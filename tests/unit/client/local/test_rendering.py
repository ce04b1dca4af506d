"""The objects that the operator would create, without a cluster."""

from pathlib import Path

import pytest
from job_files import EXAMPLES, JOB, read
from world import START

from ddpjob.local.rendering import record_of, rendered
from ddpjob.manifests.documents import only_job, read_documents
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.status import Membership
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.service import build_service


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_rendered_is_what_the_operator_s_own_functions_make(path: Path) -> None:
    document = only_job(read_documents(path.read_text(), path.name))
    job = record_of(document, "ns")
    assert job.spec is not None
    made = {(each["kind"], each["metadata"]["name"]): each for each in rendered(job, START)}
    first = Membership(attempt=0, nodes=job.spec.nodes) if job.spec.elastic else None
    pods = [build_pod(job, job.spec, 0, ordinal, membership=first) for ordinal in range(job.spec.nodes)]
    for expected in (build_service(job, job.spec), build_launcher(job, job.spec), *pods):
        assert made[(expected["kind"], expected["metadata"]["name"])] == expected


def test_a_suspended_job_is_rendered_as_if_it_were_not() -> None:
    job = record_of(read(JOB + "  suspend: true\n"), "ns")
    assert sum(each["kind"] == "Pod" for each in rendered(job, START)) == 2


def test_an_elastic_job_is_rendered_with_the_pods_that_it_begins_with() -> None:
    job = record_of(read(JOB.replace("nodes: 2", "nodes: 2\n  elastic: {maxNodes: 12}")), "ns")
    pods = [each["metadata"] for each in rendered(job, START) if each["kind"] == "Pod"]
    assert [pod["name"] for pod in pods] == ["digits-a0-00", "digits-a0-01"]
    assert {pod["annotations"]["ddpjob.dev/membership"] for pod in pods} == {'{"generation":0,"nodes":2}'}


def test_what_the_operator_would_refuse_is_not_rendered() -> None:
    job = record_of(read(JOB.replace("nodes: 2", "nodes: 2\n  template: {spec: {subdomain: x}}")), "ns")
    with pytest.raises(UsageProblem, match="subdomain"):
        rendered(job, START)
