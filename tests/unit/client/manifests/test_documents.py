"""Manifests as written, with their lines."""

import json

import pytest
import yaml
from job_files import JOB, read

from ddpjob.cli.output import manifests_json, manifests_text
from ddpjob.cluster.submission import submission_of
from ddpjob.manifests.documents import check_job, dotted, parse_path, problems_at, read_documents
from ddpjob_core.api.errors import UsageProblem


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("nodes: 2", "nods: 2", "job.yaml:6: spec.nods: unknown field; did you mean nodes?"),
        ("nodes: 2", "nodes: two", "job.yaml:6: spec.nodes: must be a whole number"),
        ("nodes: 2", "nodes: 0", "job.yaml:6: spec.nodes: must be at least 1"),
        (
            "nodes: 2",
            "nodes: 10000\n  procsPerNode: 256",
            "job.yaml:6: spec.nodes: nodes x procsPerNode must be at most 100,000 processes: reduce one of them",
        ),
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
        (
            "  nodes: 2",
            "  nodes: 2\n  restart: {rules: [{action: Ignore}]}",
            "spec.restart.rules[0]: set at least one of exitCodes, signals, reasons or message",
        ),
        ("    script: train.py", "    script: a\n    imagee: b", "job.yaml:10: spec.trainer.imagee: unknown field"),
        (
            "  nodes: 2",
            "  nodes: 2\n  template:\n    spec:\n      subdomain: x",
            "job.yaml:9: spec.template.spec.subdomain: cannot be set",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_file_line_and_field(old: str, new: str, problem: str) -> None:
    assert old in JOB
    told = [str(each) for each in check_job(read(JOB.replace(old, new)))]
    assert any(problem in text for text in told), told


def test_everything_that_is_wrong_is_reported_together_in_the_order_of_the_lines() -> None:
    problems = check_job(read(JOB.replace("nodes: 2", "nods: 2").replace("image: i", "imagee: i")))
    assert [problem.place for problem in problems] == ["job.yaml:6", "job.yaml:7", "job.yaml:8"]


def test_unknown_fields_of_a_pod_template_are_the_api_server_s_business() -> None:
    assert check_job(read(JOB.replace("nodes: 2", "nodes: 2\n  template: {spec: {newField: 1}}"))) == []


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
        (JOB + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: other", "job.yaml:13: metadata: must be an object"),
        (JOB + "---\napiVersion: v1\nkind: ConfigMap", "job.yaml:11: metadata: must be an object"),
    ],
)
def test_a_file_that_is_not_a_manifest_of_a_job_is_refused_in_a_sentence(text: str, problem: str) -> None:
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


def test_documents_keep_their_lines_next_to_empty_ones() -> None:
    documents = read_documents(f"---\n# nothing\n---\n{JOB}---\n{JOB}", "job.yaml")
    assert [document.lines[("metadata", "name")] for document in documents] == [7, 17]
    assert [yaml.safe_dump(document.content) for document in documents] == [yaml.safe_dump(yaml.safe_load(JOB))] * 2
