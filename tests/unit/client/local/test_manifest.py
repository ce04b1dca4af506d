"""What a file becomes as a job for this machine."""

import json
from datetime import date

import pytest
from local_jobs import manifest_of

from ddpjob.local.errors import LocalError
from ddpjob.local.manifest import local_manifest
from ddpjob.manifests.documents import Document
from ddpjob_core.api.errors import UsageProblem


def test_a_wrong_job_is_refused_with_the_line_and_the_field() -> None:
    with pytest.raises(UsageProblem, match=r"job.yaml:\d+: spec.nodes: must be at least 1"):
        manifest_of(nodes=0)


@pytest.mark.parametrize("namespace", ["../../evil", "/tmp", "a/b", "A", "", "a" * 64, "a\n"])
@pytest.mark.parametrize("option", [True, False])
def test_a_namespace_that_is_not_a_label_does_not_name_a_folder(namespace: str, *, option: bool) -> None:
    job = {**manifest_of().job}
    job["metadata"] = {"name": "digits", **({} if option else {"namespace": namespace})}
    with pytest.raises(UsageProblem, match=r"namespace.* must be a DNS-1123 label"):
        local_manifest([Document("job.yaml", job)], namespace if option else None)


def test_a_job_that_could_change_its_size_keeps_it_on_a_machine() -> None:
    manifest = manifest_of(nodes=2, elastic={"maxNodes": 4})
    assert manifest.spec.elastic is None
    assert manifest.left_out == ("spec.elastic",)
    assert manifest_of(nodes=2).left_out == ()
    assert manifest.job == manifest_of(nodes=2).job


def test_mpirun_runs_on_one_node_of_a_machine_and_says_how_to_have_as_many_processes() -> None:
    with pytest.raises(
        LocalError, match=r"spec\.nodes: mpirun reaches other nodes by ssh.*nodes: 1 .*procsPerNode: 6 here"
    ):
        manifest_of(nodes=3, procsPerNode=2, launcher="mpirun")
    assert manifest_of(nodes=1, procsPerNode=6, launcher="mpirun").spec.procs_per_node == 6


def test_a_namespace_of_the_file_counts_before_the_option() -> None:
    job = {**manifest_of().job, "metadata": {"name": "digits", "namespace": "theirs"}}
    assert local_manifest([Document("job.yaml", job)], "mine").namespace == "theirs"
    assert manifest_of().namespace == "default"


def test_a_job_is_the_same_once_it_was_saved_whatever_yaml_makes_of_its_values() -> None:
    annotations = {"since": date(2026, 1, 2), 5: "five"}
    job = manifest_of(template={"metadata": {"annotations": annotations}}).job
    assert json.loads(json.dumps(job)) == job
