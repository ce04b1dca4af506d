"""A job made from a script or a module."""

import pytest
from job_files import JOB, REQUEST, read
from world import START

from ddpjob.local.rendering import record_of, rendered
from ddpjob.manifests.documents import Document, check_job
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
