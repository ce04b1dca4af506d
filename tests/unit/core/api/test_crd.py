"""The CustomResourceDefinition that is made from the types, and the pages and manifests generated with it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddpjob_core.api import ApiModel, DDPJobSpec
from ddpjob_core.api.crd import custom_resource_definition, render, structural_schema
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord
from hack.generate.files import GENERATED, outdated, write
from hack.generate.permissions import granted, permissions_page

ROOT = Path(__file__).resolve().parents[4]
VERSION = custom_resource_definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
EXAMPLES = sorted((ROOT / "manifests/examples").glob("*.yaml"))


def nodes(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below spec and status by its path: fields, elements of lists, values of maps."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(f"{path}.{name}", field)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from nodes(f"{path}{suffix}", schema[key])


NODES = dict(each for name in ("spec", "status") for each in nodes(name, SCHEMA["properties"][name]))


def test_every_field_has_a_description() -> None:
    fields = {path: node for path, node in NODES.items() if not path.endswith(("[]", "{}"))}
    assert [path for path, node in fields.items() if len(node.get("description", "")) < 5] == []
    assert len(fields) > 100


# What of a type's keys bounds it; any set of them is enough.
BOUNDS: dict[str, list[set[str]]] = {
    "string": [{"maxLength"}, {"enum"}],
    "integer": [{"minimum", "maximum"}],
    "number": [{"minimum", "maximum"}],
    "array": [{"maxItems"}],
    "object": [{"properties"}, {"maxProperties"}],
    "boolean": [set()],
    "integer or string": [{"maxLength", "x-kubernetes-validations"}],
    "quantity": [{"minimum", "maximum", "maxLength", "pattern", "maxItems", "maxProperties"}],
    "preserved": [set()],
}


def is_bounded(node: dict[str, Any]) -> bool:
    kind = "integer or string" if "x-kubernetes-int-or-string" in node else node.get("type", "preserved")
    if kind == "preserved" and "pattern" in node:
        kind = "quantity"
    return node.get("format") == "date-time" or any(bounds <= node.keys() for bounds in BOUNDS[kind])


def test_every_number_text_list_and_map_has_bounds() -> None:
    assert [path for path, node in NODES.items() if not is_bounded(node)] == []


def test_the_schema_is_structural() -> None:
    for path, node in NODES.items():
        assert not {"$ref", "anyOf", "allOf", "oneOf", "title", "const"} & node.keys(), path
        untyped = "x-kubernetes-int-or-string" in node or "x-kubernetes-preserve-unknown-fields" in node
        assert untyped or "type" in node, path


def test_an_object_that_is_compared_as_a_whole_and_preserves_what_it_does_not_know_has_no_type() -> None:
    """CEL calls two typed objects equal where a key that it does not know is replaced by another."""
    untyped = [path for path, node in NODES.items() if "x-kubernetes-preserve-unknown-fields" in node]
    quantities = [f"spec.trainer.resources.{key}{{}}" for key in ("limits", "requests")]
    divisor = "spec.trainer.env[].valueFrom.resourceFieldRef.divisor"
    others = ["spec.trainer.securityContext", "spec.template.metadata", "spec.template.spec"]
    assert untyped == [divisor, *quantities, *others]
    assert [path for path in untyped if "type" in NODES[path]] == ["spec.template.metadata"]
    # What a pod takes of it is declared, so a replaced key is seen.
    assert set(NODES["spec.template.metadata"]["properties"]) == {"labels", "annotations"}


def test_everything_but_what_may_change_in_a_running_job_is_held_fixed() -> None:
    rules = [rule for rule in SCHEMA["x-kubernetes-validations"] if "oldSelf" in rule["rule"]]
    fixed = {rule["fieldPath"].removeprefix(".spec.") for rule in rules}
    deadlines = {"startupDeadline", "progressDeadline", "activeDeadlineSeconds"}
    free = {"suspend", "ttlSecondsAfterFinished", "cleanPodPolicy", "restart", "slowRank", *deadlines}
    assert set(NODES["spec"]["properties"]) - fixed == free


def test_a_status_gets_no_defaults_for_it_is_what_its_writer_wrote() -> None:
    assert [path for path, node in NODES.items() if path.startswith("status.") and "default" in node] == []


def test_a_job_without_a_status_has_a_phase_and_nothing_that_the_operator_would_take_for_its_own() -> None:
    shown = NODES["status"]["default"]
    assert shown == {"phase": "Pending"}
    raw = {"metadata": {"namespace": "ns", "name": "digits", "uid": "u"}, "spec": {}, "status": shown}
    record = job_record(raw)
    assert record is not None
    assert record.status is None


def test_the_columns_are_those_that_a_person_is_promised() -> None:
    columns = VERSION["additionalPrinterColumns"]
    assert [(column["name"], column["type"], column.get("priority", 0)) for column in columns] == [
        ("State", "string", 0),
        ("Nodes", "string", 0),
        ("Restarts", "integer", 0),
        ("Epoch", "string", 0),
        ("Step", "string", 0),
        ("Loss", "string", 0),
        ("Eta", "string", 0),
        ("Age", "date", 0),
        ("Speed", "string", 1),
        ("Launcher", "string", 1),
        ("Backend", "string", 1),
        ("Last-Step", "date", 1),
    ]
    for column in columns:
        path = column["jsonPath"].removeprefix(".")
        several = re.fullmatch(r"status\['(\w+)','(\w+)'\]", path)
        for each in [f"status.{name}" for name in several.groups()] if several else [path]:
            assert each in NODES or each == "metadata.creationTimestamp"


def test_a_type_that_no_structural_schema_can_have_is_refused() -> None:
    class Ambiguous(ApiModel):
        value: int | str

    with pytest.raises(TypeError, match="one type"):
        structural_schema(Ambiguous, defaults=True)


def test_the_manifest_survives_yaml_as_it_is() -> None:
    text = render(custom_resource_definition())
    assert yaml.safe_load(text) == custom_resource_definition()
    assert "&id" not in text


def test_a_file_that_is_not_current_is_shown_with_its_difference_and_rewritten(tmp_path: Path) -> None:
    assert sorted(write(tmp_path)) == sorted(GENERATED)
    page = tmp_path / "docs/rbac.md"
    page.write_text(page.read_text().replace("| pods |", "| nodes |", 1))
    found = outdated(tmp_path)
    assert list(found) == ["docs/rbac.md"]
    assert "+| pods | create |" in found["docs/rbac.md"]


def test_what_is_granted_without_a_reason_is_refused() -> None:
    assert ("ddpjobs.ddpjob.dev/status", "update") in granted()
    with pytest.raises(KeyError, match="secrets"):
        permissions_page([*granted(), ("secrets", "get")])
    with pytest.raises(KeyError, match="events"):
        permissions_page([each for each in granted() if each[0] != "events"])


def test_the_operator_asks_for_no_right_to_patch_jobs_to_read_secrets_or_to_reach_beyond_its_objects() -> None:
    verbs = {verb for _, verb in granted()}
    resources = {resource for resource, _ in granted()}
    assert verbs == {"create", "delete", "get", "list", "patch", "update", "watch"}
    assert [resource for resource, verb in granted() if verb == "patch"] == ["pods"]
    assert resources == {
        "configmaps",
        "ddpjobs.ddpjob.dev",
        "ddpjobs.ddpjob.dev/status",
        "events",
        "leases.coordination.k8s.io",
        "persistentvolumeclaims",
        "pods",
        "secrets",
        "services",
    }
    assert [verb for resource, verb in granted() if resource == "secrets"] == ["create"]


def test_the_operators_pod_may_do_nothing_on_its_node() -> None:
    pod = yaml.safe_load((ROOT / "manifests/base/deployment.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_makes_pods(example: Path) -> None:
    (raw,) = [each for each in yaml.safe_load_all(example.read_text()) if each["kind"] == "DDPJob"]
    spec = DDPJobSpec.model_validate(raw["spec"])
    assert template_errors(spec.template) == []
    job = JobRecord("default", raw["metadata"]["name"], "uid", "1", 1, deleting=False, spec=spec)
    pod = build_pod(job, spec, 0, 0)
    mounts = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts <= {volume["name"] for volume in pod["spec"]["volumes"]}
