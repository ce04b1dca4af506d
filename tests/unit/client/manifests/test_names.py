"""Names that a user gives: checked before they get into a request, and never more than one segment of its path."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ddpjob import DDPJob
from ddpjob.cli.app import app
from ddpjob.cluster.submission import submission_of
from ddpjob.manifests.documents import read_documents
from ddpjob.views.exit_codes import ExitCode
from ddpjob_core.api.constants import MAX_NAME_LENGTH
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.resources import JOBS, PODS

NO_CLUSTER: Any = object()
JOB = """\
apiVersion: ddpjob.dev/v1alpha1
kind: DDPJob
metadata: {name: digits}
spec: {trainer: {image: i, script: train.py}}
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("status", "../pods"), "NAME '../pods': must be a DNS-1035 label of at most 52"),
        (("status", ""), "NAME '': must be a DNS-1035 label"),
        (("doctor", ""), "NAME '': must be a DNS-1035 label"),
        (("why", "a/b"), "NAME 'a/b': must be a DNS-1035 label"),
        (("logs", "a?watch=1"), "NAME 'a?watch=1': must be a DNS-1035 label"),
        (("suspend", "."), "NAME '.': must be a DNS-1035 label"),
        (("resume", "Digits"), "NAME 'Digits': must be a DNS-1035 label"),
        (("scale", "--nodes", "2", ".."), "NAME '..': must be a DNS-1035 label"),
        (("delete", "digits", "x" * (MAX_NAME_LENGTH + 1)), "xx': must be a DNS-1035 label"),
        (("status", "-n", "../x"), "--namespace '../x': must be a DNS-1123 label of at most 63"),
        (("top", "-n", ""), "--namespace '': must be a DNS-1123 label"),
        (("run", "-n", "a.b", "-f", "job.yaml"), "--namespace 'a.b': must be a DNS-1123 label"),
        (("render", "-n", "x" * 64, "-f", "job.yaml"), "xx': must be a DNS-1123 label"),
        (("run", "--name", "Line", "train.py"), "--name 'Line': must be a DNS-1035 label"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_any_cluster_is_asked(
    arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("namespace", ["a", "1a", "x" * 63, "kube-system"])
def test_a_namespace_that_can_be_is_taken(namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert CliRunner().invoke(app, ["status", "-n", namespace]).exit_code == ExitCode.CLUSTER


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ({"name": "../pods"}, "name '../pods': must be a DNS-1035 label"),
        ({"name": ""}, "name '': must be a DNS-1035 label"),
        ({"name": "digits", "namespace": "../x"}, "namespace '../x': must be a DNS-1123 label"),
    ],
)
def test_from_python_too_a_name_that_cannot_be_is_refused(place: dict[str, str], told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        DDPJob(**place, cluster=NO_CLUSTER)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{name: digits}", "{name: digits, namespace: ../x}", "job.yaml:3: metadata.namespace: must be a DNS-1123"),
        ("{name: digits}", "{name: digits, namespace: 5}", "job.yaml:3: metadata.namespace: must be a DNS-1123"),
        (
            "apiVersion: ddpjob",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: ..}\n---\napiVersion: ddpjob",
            "job.yaml:3: metadata.namespace: must be a DNS-1123",
        ),
        (
            "apiVersion: ddpjob",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {labels: {}}\n---\napiVersion: ddpjob",
            "job.yaml:3: metadata.name: is missing",
        ),
    ],
)
def test_a_name_of_a_file_that_cannot_be_is_reported_with_its_line(old: str, new: str, told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        submission_of(read_documents(JOB.replace(old, new), "job.yaml"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (JOBS.path("ns", "../pods"), "/apis/ddpjob.dev/v1alpha1/namespaces/ns/ddpjobs/..%2Fpods"),
        (JOBS.path("../x", "a?b#c"), "/apis/ddpjob.dev/v1alpha1/namespaces/..%2Fx/ddpjobs/a%3Fb%23c"),
        (PODS.path("ns", "op:8080", "proxy/healthz"), "/api/v1/namespaces/ns/pods/op:8080/proxy/healthz"),
        (PODS.path(None), "/api/v1/pods"),
    ],
)
def test_a_name_is_one_segment_of_a_path(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_make_another_path_makes_none(name: str) -> None:
    with pytest.raises(UsageProblem, match="no object can have the name"):
        PODS.path("ns", name)
