"""Parts of requirements.lock: what the operator's image needs, and what runs tests inside the trainer's."""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from typing import Final

from hack.cache import ROOT

SOURCE: Final = ROOT / "requirements.lock"
TARGET: Final = ROOT / "images/operator/requirements.lock"
_HEADER: Final = "# Taken from requirements.lock by python -m hack.generate.lock: what ddpjob[operator] needs.\n"


def entries(lock: str) -> dict[str, str]:
    """Package names with their text in the lock: version, hashes and who needs it.

    A package that is locked twice, for older and newer Pythons, has both texts under its one name.
    """
    found: dict[str, str] = {}
    for text in re.split(r"\n(?=[A-Za-z0-9])", "\n" + lock):
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)==", text)
        if match is not None:
            name = normal(match[1])
            found[name] = found.get(name, "") + text.strip("\n") + "\n"
    return found


def normal(name: str) -> str:
    """A package's name as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(text: str) -> set[str]:
    """The packages that an entry says it is there for."""
    comments = re.findall(r"#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)", text)
    return {normal(name) for name in comments if name != "via"}


def closure(packages: Mapping[str, str], roots: Iterable[str]) -> set[str]:
    """The roots and all that they need, directly or not."""
    wanted = {name for name in roots if name in packages}
    while True:
        more = {name for name, text in packages.items() if needed_by(text) & wanted} - wanted
        if not more:
            return wanted
        wanted |= more


def part(lock: str, roots: Iterable[str]) -> str:
    """What some packages need, with versions and hashes as they are locked."""
    packages = entries(lock)
    missing = sorted(set(roots) - packages.keys())
    if missing:
        sys.exit(f"requirements.lock has no {', '.join(missing)}; resolve it anew from pyproject.toml")
    return "".join(packages[name] for name in sorted(closure(packages, roots)))


def operator_packages(project: str) -> list[str]:
    """The packages that pyproject.toml declares for ddpjob[operator]."""
    declared = tomllib.loads(project)["project"]
    requirements = [*declared["dependencies"], *declared["optional-dependencies"]["operator"]]
    return [normal(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]) for requirement in requirements]


def generated() -> str:
    """What images/operator/requirements.lock has to hold."""
    return _HEADER + part(SOURCE.read_text(), operator_packages((ROOT / "pyproject.toml").read_text()))


def main() -> None:
    """Write the file."""
    TARGET.write_text(generated())


if __name__ == "__main__":
    main()
