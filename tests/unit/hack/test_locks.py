import re
from collections.abc import Iterable, Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.cache import ROOT

WHOLE = ROOT / "requirements.lock"
OPERATOR = ROOT / "images/operator/requirements.lock"
PLUGIN = ROOT / "hack/release/plugin/requirements.lock"
TORCH_TESTS = ROOT / "tests/torch/requirements.lock"


def pins(lock: Path) -> Iterator[tuple[Requirement, frozenset[str]]]:
    """What a lock installs, with the hashes that it accepts."""
    text = re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in text.splitlines():
        requirement, *hashes = line.split("--hash=")
        yield Requirement(requirement.strip()), frozenset(found.strip() for found in hashes)


def applies(marker: Marker | None, extra: str = "") -> bool:
    return marker is None or marker.evaluate({"extra": extra})


def closure(wanted: Iterable[Requirement]) -> set[str]:
    """Names of all that some packages need on this machine, by what the installed ones declare."""
    todo = [(requirement, extra) for requirement in wanted for extra in ("", *requirement.extras)]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement, extra = todo.pop()
        name = str(canonicalize_name(requirement.name))
        if (name, extra) not in seen:
            seen.add((name, extra))
            needed = [Requirement(text) for text in requires(requirement.name) or ()]
            needed = [one for one in needed if applies(one.marker, extra)]
            todo += [(one, inner) for one in needed for inner in ("", *one.extras)]
    return {name for name, _ in seen}


@pytest.mark.parametrize("lock", [OPERATOR, PLUGIN, TORCH_TESTS], ids=["operator", "plugin", "torch tests"])
def test_a_smaller_lock_pins_what_requirements_lock_pins(lock: Path) -> None:
    whole = {(str(requirement), hashes) for requirement, hashes in pins(WHOLE)}
    assert {(str(requirement), hashes) for requirement, hashes in pins(lock)} <= whole, (
        "its first lines say how to mend"
    )
    assert all(hashes for _, hashes in pins(lock))


def test_the_lock_of_full_runs_pins_each_package_by_hashes() -> None:
    found = list(pins(TORCH_TESTS.with_name("requirements-full.lock")))
    assert found
    assert all(hashes and len(requirement.specifier) == 1 for requirement, hashes in found)


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        (OPERATOR, ["ddpjob[operator]"]),
        (PLUGIN, ["ddpjob[cli]"]),
        (TORCH_TESTS, [line for line in TORCH_TESTS.with_suffix(".in").read_text().splitlines() if line[0] != "#"]),
    ],
    ids=["operator", "plugin", "torch tests"],
)
def test_a_smaller_lock_has_all_that_is_needed_and_nothing_else(lock: Path, wanted: list[str]) -> None:
    locked = {str(canonicalize_name(one.name)) for one, _ in pins(lock) if applies(one.marker)}
    assert locked == closure(map(Requirement, wanted)) - {"ddpjob"}, "its first lines say how to mend"
