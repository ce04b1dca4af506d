"""What is read from the bindings, next to what the documentation of the provider says of the same resources."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from hack.terraform.schema import ProviderSchema, SchemaError, provider_schema

Json = dict[str, Any]
TYPES = [
    ("resource", "instance"),
    ("resource", "security_group"),
    ("resource", "eks_cluster"),
    ("resource", "vpc_security_group_ingress_rule"),
    ("resource", "does_not_exist"),
    ("data", "ec2_instance_type"),
]


@pytest.fixture(scope="module")
def schema(programs: Path) -> ProviderSchema:
    (wheel,) = programs.glob("*.whl")
    return provider_schema(wheel, TYPES)


@pytest.fixture(scope="module")
def resources(schema: ProviderSchema) -> Json:
    return {name: each["block"] for name, each in schema.content["resource_schemas"].items()}


def flags(attribute: Json) -> str:
    return " ".join(name for name in ("required", "optional", "computed") if attribute[name])


def test_it_has_the_types_that_are_asked_for_and_exist(schema: ProviderSchema, resources: Json) -> None:
    assert schema.version == "6.25.0"
    assert set(resources) == {f"aws_{name}" for kind, name in TYPES[:4] if kind == "resource"}
    assert set(schema.content["data_source_schemas"]) == {"aws_ec2_instance_type"}


@pytest.mark.parametrize(
    ("resource", "attribute", "of_type", "given"),
    [
        ("aws_instance", "ami", "string", "optional computed"),
        ("aws_instance", "arn", "string", "computed"),
        ("aws_instance", "associate_public_ip_address", "bool", "optional computed"),
        ("aws_instance", "vpc_security_group_ids", ["set", "string"], "optional computed"),
        ("aws_instance", "tags", ["map", "string"], "optional"),
        ("aws_eks_cluster", "role_arn", "string", "required"),
        ("aws_vpc_security_group_ingress_rule", "from_port", "number", "optional"),
        ("aws_vpc_security_group_ingress_rule", "tags_all", ["map", "string"], "computed"),
    ],
)
def test_attributes_have_type_and_use(
    resources: Json, resource: str, attribute: str, of_type: Json, given: str
) -> None:
    found = resources[resource]["attributes"][attribute]
    assert (found["type"], flags(found)) == (of_type, given)


@pytest.mark.parametrize(
    ("resource", "block", "form"),
    [
        ("aws_instance", "root_block_device", ("list", 0, 1)),
        ("aws_instance", "ebs_block_device", ("set", 0, 0)),
        ("aws_instance", "timeouts", ("single", 0, 0)),
        ("aws_eks_cluster", "vpc_config", ("list", 1, 1)),
    ],
)
def test_blocks_nest_as_they_do(resources: Json, resource: str, block: str, form: tuple[str, int, int]) -> None:
    found = resources[resource]["block_types"][block]
    assert (found["nesting_mode"], found["min_items"], found["max_items"]) == form


def test_lists_of_objects_that_are_written_as_attributes_are_attributes(resources: Json) -> None:
    ingress = resources["aws_security_group"]["attributes"]["ingress"]["type"]
    assert ingress[0] == "set"
    assert ingress[1][0] == "object"
    assert ingress[1][1]["cidr_blocks"] == ["list", "string"]
    assert "ingress" not in resources["aws_security_group"]["block_types"]


def test_lists_of_objects_that_are_computed_are_attributes(schema: ProviderSchema) -> None:
    block = schema.content["data_source_schemas"]["aws_ec2_instance_type"]["block"]
    assert block["attributes"]["gpus"]["type"][1][1]["manufacturer"] == "string"


def test_the_providers_own_blocks_are_read_too(schema: ProviderSchema) -> None:
    block = schema.content["provider"]["block"]
    assert block["attributes"]["region"]["type"] == "string"
    assert block["block_types"]["default_tags"]["block"]["attributes"]["tags"]["type"] == ["map", "string"]


def test_another_package_is_refused_by_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other-1.0.whl", "w") as wheel:
        wheel.writestr("other/__init__.py", "")
    with pytest.raises(SchemaError, match=r"other-1\.0\.whl: 0 files \.jsii\.tgz in it"):
        provider_schema(tmp_path / "other-1.0.whl", TYPES)
