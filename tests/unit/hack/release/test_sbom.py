"""What the wheel needs, and what an image contains, in CycloneDX."""

import json
import zipfile
from io import BytesIO
from typing import Any

import pytest

from hack.cache import ROOT
from hack.release.build import LOCKS
from hack.release.components import Package, python_package
from hack.release.locks import locked_packages, required_by, required_names
from hack.release.sbom import image_sbom, wheel_sbom
from hack.release.settings import Release

RELEASE = Release("1.2.3", 1_700_000_000, registry="", url="")
LOCK = """\
# a comment
one==1.0 \\
    --hash=sha256:11
    # via ddpjob (pyproject.toml)
Two.Two==2.0 ; sys_platform == 'win32' \\
    --hash=sha256:22 \\
    --hash=sha256:23
    # via
    #   one
    #   three
three==3
    # via -r requirements.in
"""
METADATA = """\
Metadata-Version: 2.4
Name: ddpjob
Requires-Dist: one<2
Requires-Dist: Two.Two; extra == "cli" and sys_platform == "win32"
Requires-Dist: torch; extra == "trainer"
"""


def wheel(metadata: str = METADATA) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("ddpjob-1.2.3.dist-info/METADATA", metadata)
    return buffer.getvalue()


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def depends(document: dict[str, Any]) -> dict[str, list[str]]:
    return {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}


@pytest.fixture(scope="module")
def locked() -> list[Package]:
    return locked_packages({extra: (ROOT / lock).read_text() for extra, lock in LOCKS.items()})


def test_a_lock_is_read_with_markers_and_with_the_extras_that_need_each_package() -> None:
    found = locked_packages({"cli": LOCK, "operator": "one==1.0\n"})
    assert [(each.name, each.version, sorted(each.extras), each.marker) for each in found] == [
        ("one", "1.0", ["cli", "operator"], ""),
        ("three", "3", ["cli"], ""),
        ("two-two", "2.0", ["cli"], 'sys_platform == "win32"'),
    ]


@pytest.mark.parametrize("line", ["one>=1", "one", "one==1,<2"])
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="does not pin one version"):
        locked_packages({"cli": f"{line}\n"})


def test_the_comments_of_a_lock_say_which_package_requires_which() -> None:
    assert required_by(LOCK) == {"one": {"ddpjob"}, "two-two": {"one", "three"}, "three": set()}


def test_the_metadata_of_a_wheel_say_what_it_asks_for_on_all_systems() -> None:
    assert required_names(wheel(), ["cli"]) == {"one", "two-two"}
    assert required_names(wheel(), []) == {"one"}


def test_each_package_that_the_locks_name_is_reached_from_the_wheel(locked: list[Package]) -> None:
    parents = required_by((ROOT / "requirements.lock").read_text())
    names = {each.name for each in locked}
    assert names <= set(parents)
    reached = {name for name in names if "ddpjob" in parents[name]}
    while more := {name for name in names - reached if parents[name] & reached}:
        reached |= more
    assert reached == names


def test_the_sbom_of_the_wheel_has_each_locked_package_and_what_requires_it(locked: list[Package]) -> None:
    parents = required_by((ROOT / "requirements.lock").read_text())
    document = read(wheel_sbom(wheel("Requires-Dist: pydantic>=2\n"), locked, parents, RELEASE))
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/ddpjob@1.2.3"
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert {each["purl"] for each in document["components"]} == {str(each.purl) for each in locked}
    pydantic = next(str(each.purl) for each in locked if each.name == "pydantic")
    core = next(str(each.purl) for each in locked if each.name == "pydantic-core")
    assert depends(document)["pkg:pypi/ddpjob@1.2.3"] == [pydantic]
    assert core in depends(document)[pydantic]


def test_the_same_wheel_has_the_same_sbom_and_another_one_another_serial_number(locked: list[Package]) -> None:
    parents = required_by((ROOT / "requirements.lock").read_text())
    metadata = "Requires-Dist: pydantic>=2\n"
    one = wheel_sbom(wheel(metadata), locked, parents, RELEASE)
    assert wheel_sbom(wheel(metadata), locked, parents, RELEASE) == one
    other = wheel_sbom(wheel(f"{metadata}Summary: changed\n"), locked, parents, RELEASE)
    assert read(other)["serialNumber"] != read(one)["serialNumber"]


def test_the_sbom_of_an_image_names_its_packages_and_claims_nothing_about_what_they_require() -> None:
    document = read(image_sbom("ddpjob-operator", [python_package("kopf", "1.45.2")], RELEASE))
    assert document["metadata"]["component"]["type"] == "container"
    assert [each["purl"] for each in document["components"]] == ["pkg:pypi/kopf@1.45.2"]
    assert "dependencies" not in document
