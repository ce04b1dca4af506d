"""Manifests and scripts as a user gives them: what is wrong is told with its line, before any cluster is asked."""

import json
from pathlib import Path

import pytest
import yaml
from world import START

from ddpjob.cli.output import manifests_json, manifests_text
from ddpjob.cluster.submission import Submission, submission_of
from ddpjob.local.rendering import record_of, rendered
from ddpjob.manifests.documents import Document, check_job, dotted, only_job, parse_path, problems_at, read_documents
from ddpjob.manifests.program import (
    LARGEST_BYTES,
    Request,
    Script,
    config_map,
    job_manifest,
    name_for,
    parse_env,
    parse_processes,
    script_of,
)
from ddpjob_core.api.constants import MAX_NAME_LENGTH
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.service import build_service

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "manifests/examples").glob("*.yaml"))
JOB = """\
apiVersion: ddpjob.dev/v1alpha1
kind: DDPJob
metadata:
  name: digits
spec:
  nodes: 2
  trainer:
    image: i
    script: train.py
"""


def read(text: str) -> Document:
    return only_job(read_documents(text, "job.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("nodes: 2", "nods: 2", "job.yaml:6: spec.nods: unknown field; did you mean nodes?"),
        ("nodes: 2", "nodes: two", "job.yaml:6: spec.nodes: must be a whole number"),
        ("nodes: 2", "nodes: 0", "job.yaml:6: spec.nodes: must be at least 1"),
        ("nodes: 2", "procsPerNode: 900", "job.yaml:6: spec.procsPerNode: must be a number from 1 to 256, or auto"),
        ("    image: i\n", "", "job.yaml:7: spec.trainer.image: is missing"),
        ("    script: train.py\n", "", "job.yaml:7: spec.trainer: must have exactly one of script, module or command"),
        ("name: digits", "name: Digits", "job.yaml:4: metadata.name: must be a DNS-1035 label"),
        ("  name: digits\n", "  labels: {}\n", "job.yaml:3: metadata.name: is missing"),
        (
            "    script: train.py",
            "    script: a\n    env: [{name: RANK}]",
            "spec.trainer.env[0].name: the launcher sets RANK",
        ),
        ("    script: train.py", "    script: a\n    imagee: b", "job.yaml:10: spec.trainer.imagee: unknown field"),
        (
            "  nodes: 2",
            "  nodes: 2\n  template:\n    spec:\n      subdomain: x",
            "job.yaml:9: spec.template.spec.subdomain: cannot be set",
        ),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_field(old: str, new: str, problem: str) -> None:
    assert old in JOB
    told = [str(each) for each in check_job(read(JOB.replace(old, new)))]
    assert any(problem in text for text in told), told


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_lines() -> None:
    problems = check_job(read(JOB.replace("nodes: 2", "nods: 2").replace("image: i", "imagee: i")))
    assert [problem.place for problem in problems] == ["job.yaml:6", "job.yaml:7", "job.yaml:8"]


def test_unknown_fields_of_a_pod_template_are_the_api_server_s_business() -> None:
    assert check_job(read(JOB.replace("nodes: 2", "nodes: 2\n  template: {spec: {newField: 1}}"))) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_have_no_problem_and_can_be_submitted(path: Path) -> None:
    submission = submission_of(read_documents(path.read_text(), path.name))
    assert submission.job.name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1\nb: 2", "job.yaml:2: not valid YAML"),
        ("- 1\n- 2", "not a Kubernetes manifest"),
        ("just text", "not a Kubernetes manifest"),
        ("kind: DDPJob", "not a Kubernetes manifest"),
        ("", "the file is empty"),
        (JOB + "---\n" + JOB, "exactly one DDPJob is expected, found digits, digits"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}", "exactly one DDPJob is expected, found none"),
        (JOB.replace("v1alpha1", "v9"), "job.yaml:1: apiVersion: must be ddpjob.dev/v1alpha1, not ddpjob.dev/v9"),
        (JOB + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}", "ddpjob cannot create a Deployment"),
        (JOB + "foo: &a [*a]", "job.yaml: not valid YAML: it refers to itself or is nested too deeply"),
        (JOB + "foo: " + "[" * 5000 + "]" * 5000, "job.yaml: not valid YAML: it refers to itself or is nested"),
        (JOB + "foo: !!int abc", "job.yaml: not valid YAML: invalid literal for int()"),
        (JOB + "foo: !!bool abc", "job.yaml: not valid YAML: 'abc'"),
        (JOB + "foo: " + "1" * 5000, "job.yaml: not valid YAML: Exceeds the limit"),
        (JOB + "foo: !!set {a}", "job.yaml:10: not valid YAML: could not determine a constructor for the tag"),
        (JOB + "foo: !!binary aGk=", "job.yaml:10: not valid YAML: could not determine a constructor for the tag"),
        (JOB + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: beside", "job.yaml:13: metadata: must be an object"),
        (JOB + "---\napiVersion: v1\nkind: ConfigMap", "job.yaml:11: metadata: must be an object"),
    ],
)
def test_a_file_that_is_no_manifest_of_a_job_is_refused_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        submission_of(read_documents(text, "job.yaml"))
    assert problem in str(refused.value)


@pytest.mark.parametrize("date", ["2024-01-02", "2024-99-99", "2024-01-02T03:04:05Z"])
def test_a_date_is_text_as_it_is_for_kubectl(date: str) -> None:
    documents = read_documents(JOB.replace("digits", f"digits\n  annotations: {{since: {date}}}"), "job.yaml")
    assert documents[0].content["metadata"]["annotations"] == {"since": date}
    assert yaml.safe_load(manifests_text([documents[0].content])) == documents[0].content
    assert json.loads(manifests_json([documents[0].content]))["items"] == [documents[0].content]


@pytest.mark.parametrize("path", ["spec.trainer.args[0]", "spec.nodes", "spec.trainer.env[12].name", "spec.x.²"])
def test_a_path_is_read_as_it_is_written(path: str) -> None:
    assert dotted(parse_path(path)) == path


def test_what_the_server_says_of_a_field_gets_its_line() -> None:
    told = problems_at(read(JOB), [("spec.trainer.script", "bad"), ("spec.rendezvous.port", "taken")])
    assert [str(each) for each in told] == [
        "job.yaml:9: spec.trainer.script: bad",
        # Of a default that is not in the file: the nearest field around it.
        "job.yaml:5: spec.rendezvous.port: taken",
    ]


# Scripts

REQUEST = Request("line", "img", Script("train.py", "print(1)\n"), None, ("--lr", "0.1"), 2, 4, {"A": "1"})


def test_a_script_becomes_a_job_that_mounts_it_and_runs_it() -> None:
    manifest = job_manifest(REQUEST)
    document = Document("x", manifest)
    assert check_job(document) == []
    trainer = manifest["spec"]["trainer"]
    assert trainer["script"] == "/ddpjob-program/train.py"
    assert trainer["args"] == ["--lr", "0.1"]
    assert trainer["env"] == [{"name": "A", "value": "1"}]
    pod = next(each for each in rendered(record_of(document, "ns"), START) if each["kind"] == "Pod")
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert volumes["ddpjob-program"]["configMap"]["name"] == "line-program"
    assert mounts["ddpjob-program"] == "/ddpjob-program"


def test_the_config_map_belongs_to_the_job_once_that_is_there() -> None:
    script = Script("train.py", "print(1)\n")
    record = record_of(Document("x", job_manifest(REQUEST)), "ns")
    made = config_map(script, "line", "ns", record)
    assert made["data"] == {"train.py": "print(1)\n"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == record.uid
    assert "ownerReferences" not in config_map(script, "line", None, None)["metadata"]


def test_what_is_printed_for_kubectl_comes_before_the_job_that_needs_it() -> None:
    submission = Submission(Document("x", job_manifest(REQUEST)), script=REQUEST.script)
    assert [manifest["kind"] for manifest in submission.manifests()] == ["ConfigMap", "DDPJob"]


def test_a_module_needs_no_config_map() -> None:
    manifest = job_manifest(Request("line", "img", module="pkg.train"))
    assert manifest["spec"]["trainer"] == {"image": "img", "module": "pkg.train"}
    assert "template" not in manifest["spec"]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("train.py", "train-abc"),
        ("/some/where/My_Train.py", "my-train-abc"),
        ("package.deep.train", "train-abc"),
        ("123.py", "job-123-abc"),
        ("___.py", "job-abc"),
        ("x" * 99 + ".py", "x" * (MAX_NAME_LENGTH - 4) + "-abc"),
    ],
)
def test_a_job_without_a_name_gets_one_that_the_api_takes(program: str, name: str) -> None:
    assert name_for(program, "abc") == name
    assert check_job(read(JOB.replace("digits", name))) == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("train.py", b"x" * (LARGEST_BYTES + 1), "a ConfigMap can hold"),
        ("train me.py", b"", "cannot be the name of a file"),
        ("train.py", b"\xff", "is not text"),
    ],
)
def test_a_script_that_cannot_travel_is_refused(name: str, content: bytes, problem: str) -> None:
    with pytest.raises(UsageProblem, match=problem):
        script_of(name, content)


@pytest.mark.parametrize("given", ["A", "=1", "RANK=1", "DDPJOB_X=1", "A B=1"])
def test_an_environment_variable_that_cannot_be_is_refused_by_its_name(given: str) -> None:
    with pytest.raises(UsageProblem, match="--env"):
        parse_env([given])


def test_environment_variables_may_hold_equal_signs() -> None:
    assert parse_env(["A=b=c", "D="]) == {"A": "b=c", "D": ""}


def test_processes_are_a_number_or_auto() -> None:
    assert (parse_processes("auto"), parse_processes("4")) == ("auto", 4)
    for wrong in ("0", "-1", "two", "²", "257", "1" * 5000):
        with pytest.raises(UsageProblem, match="procs-per-node"):
            parse_processes(wrong)


# Rendering


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_rendered_is_what_the_operator_s_own_functions_make(path: Path) -> None:
    document = only_job(read_documents(path.read_text(), path.name))
    job = record_of(document, "ns")
    assert job.spec is not None
    made = {(each["kind"], each["metadata"]["name"]): each for each in rendered(job, START)}
    pods = [build_pod(job, job.spec, 0, ordinal) for ordinal in range(job.spec.nodes)]
    for expected in (build_service(job, job.spec), build_launcher(job, job.spec), *pods):
        assert made[(expected["kind"], expected["metadata"]["name"])] == expected


def test_a_suspended_job_is_rendered_as_if_it_were_not() -> None:
    job = record_of(read(JOB + "  suspend: true\n"), "ns")
    assert sum(each["kind"] == "Pod" for each in rendered(job, START)) == 2


def test_what_the_operator_would_refuse_is_no_rendering() -> None:
    job = record_of(read(JOB.replace("nodes: 2", "nodes: 2\n  template: {spec: {subdomain: x}}")), "ns")
    with pytest.raises(UsageProblem, match="subdomain"):
        rendered(job, START)


def test_documents_keep_their_lines_beside_empty_ones() -> None:
    documents = read_documents(f"---\n# nothing\n---\n{JOB}---\n{JOB}", "job.yaml")
    assert [document.lines[("metadata", "name")] for document in documents] == [7, 17]
    assert [yaml.safe_dump(document.content) for document in documents] == [yaml.safe_dump(yaml.safe_load(JOB))] * 2
