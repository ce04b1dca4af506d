"""What of a job can be changed, and when: told before the API server is asked."""

from typing import Any

import pytest

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import set_nodes, set_suspend
from ddpjob.views.job import job_of
from ddpjob_core.api.errors import UsageProblem

ENDED = {
    "type": "Succeeded",
    "status": "True",
    "reason": "R",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def raw(phase: str, **spec: Any) -> dict[str, Any]:
    conditions = [ENDED] if phase == ENDED["type"] else []
    return {
        "metadata": {"namespace": "ns", "name": "digits", "uid": "u", "resourceVersion": "1"},
        "spec": {"trainer": {"image": "i", "script": "s"}, **spec},
        "status": {"attempt": 0, "podsCreated": True, "phase": phase, "conditions": conditions},
    }


class Changes(Cluster):
    """Keeps what was to be changed."""

    def __init__(self) -> None:
        self.specs: list[dict[str, Any]] = []

    def patch(self, *given: Any) -> dict[str, Any]:
        change = given[-1]
        self.specs.append(change["spec"])
        return raw("Suspended", **change["spec"])


def test_a_suspended_job_is_resized() -> None:
    cluster = Changes()
    set_nodes(cluster, job_of(raw("Suspended", suspend=True)), 3)
    assert cluster.specs == [{"nodes": 3}]


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (raw("Running"), "digits is not suspended: without spec.elastic its size changes only while it is suspended"),
        # maxNodes is missing.
        (raw("Running", elastic={"minNodes": 1}), "its size changes only while it is suspended"),
        (raw("Running", elastic={"maxNodes": 2}), "can have from 1 to 2 nodes, as its spec.elastic says, and not 3"),
        (raw("Succeeded", suspend=True), "digits has succeeded: its size can no longer change"),
    ],
)
def test_a_job_that_is_not_suspended_keeps_its_size(job: dict[str, Any], told: str) -> None:
    cluster = Changes()
    with pytest.raises(UsageProblem, match=told):
        set_nodes(cluster, job_of(job), 3)
    assert cluster.specs == []


def test_an_elastic_job_is_resized_while_it_runs() -> None:
    cluster = Changes()
    set_nodes(cluster, job_of(raw("Running", elastic={"minNodes": 2, "maxNodes": 4})), 3)
    assert cluster.specs == [{"nodes": 3}]


def unfit() -> dict[str, Any]:
    job = raw("Failed")
    job["status"]["conditions"] = [{**ENDED, "type": "Failed", "reason": "InvalidSpec"}]
    return job


def test_a_job_that_failed_for_its_spec_is_resized_but_only_an_edit_starts_it_again() -> None:
    cluster = Changes()
    set_nodes(cluster, job_of(unfit()), 3)
    assert cluster.specs == [{"nodes": 3}]
    with pytest.raises(UsageProblem, match="has failed and cannot be resumed") as refused:
        set_suspend(cluster, job_of(unfit()), suspend=False)
    assert "kubectl edit ddpjob digits -n ns" in refused.value.remedy
