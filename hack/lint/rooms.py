"""The rooms of operator/, and which imports from which: few arrows, and none upwards.

The rooms are the layers that pyproject.toml gives to import-linter, which holds their order. It does not hold how many
arrows there are between them, nor that every module is in one of them.
"""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cache import ROOT

MOST_ARROWS: Final = 54
SOURCES: Final = ROOT / "operator"
LAYERS_CONTRACT: Final = "rooms import downwards only"

Arrow = tuple[str, str]
"""A room, and another that it imports from."""


@dataclass(frozen=True)
class Plan:
    """The rooms, from the top, and the arrows between them.

    Attributes:
        rooms: from the top down.
        arrows: for each arrow one of the imports that make it.
        outside: modules that import or are imported, and are in no room.
    """

    rooms: Sequence[str]
    arrows: dict[Arrow, str]
    outside: frozenset[str]

    def upwards(self) -> list[Arrow]:
        """The arrows from a room to a higher one."""
        return sorted(arrow for arrow in self.arrows if self.rooms.index(arrow[0]) > self.rooms.index(arrow[1]))

    def direct(self) -> list[Arrow]:
        """The arrows, except those whose room a longer way leads to as well."""
        lower = {room: {to for origin, to in self.arrows if origin == room} for room in self.rooms}
        reached: dict[str, set[str]] = {}
        for room in reversed(self.rooms):
            reached[room] = set(lower[room]).union(*(reached.get(other, set()) for other in lower[room]))
        return [
            (room, to)
            for room in self.rooms
            for to in sorted(lower[room], key=self.rooms.index)
            if not any(to in reached.get(other, set()) for other in lower[room] - {to})
        ]


def layers(project: str) -> list[str]:
    """The rooms, from the top down, as the contract of import-linter lists them."""
    contracts = tomllib.loads(project)["tool"]["importlinter"]["contracts"]
    listed = next(contract["layers"] for contract in contracts if contract["name"] == LAYERS_CONTRACT)
    return [room.strip() for layer in listed for room in layer.split("|")]


def plan(rooms: Sequence[str], sources: Path = SOURCES) -> Plan:
    """Read the imports of all modules below a folder."""
    modules = {_module(path, sources): path for path in sorted(sources.rglob("*.py"))}
    packages = {name.partition(".")[0] for name in modules}
    arrows: dict[Arrow, str] = {}
    outside: set[str] = set()
    for module, path in modules.items():
        if any(room.startswith(f"{module}.") for room in rooms):
            # The door of a package: it offers users what is in the rooms.
            continue
        for imported in _imports(path, module, modules):
            if imported.partition(".")[0] not in packages:
                continue
            ends = room_of(module, rooms), room_of(imported, rooms)
            outside |= {name for name, room in zip((module, imported), ends, strict=True) if room is None}
            if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
                arrows.setdefault((ends[0], ends[1]), f"{module} -> {imported}")
    return Plan(rooms, arrows, frozenset(outside))


def room_of(module: str, rooms: Sequence[str]) -> str | None:
    """The room that a module is in, if any."""
    return next((room for room in rooms if module == room or module.startswith(f"{room}.")), None)


def _module(path: Path, sources: Path) -> str:
    return ".".join(path.relative_to(sources).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path, module: str, modules: dict[str, Path]) -> Iterator[str]:
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            names = (f"{origin}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else origin for name in names)


def current(root: Path = ROOT) -> Plan:
    """The rooms of this tree."""
    return plan(layers((root / "pyproject.toml").read_text()), root / "operator")


def complaints(found: Plan, most: int = MOST_ARROWS) -> list[str]:
    """What is wrong with a plan."""
    wrong = [f"{module} is in none of the rooms that pyproject.toml lists" for module in sorted(found.outside)]
    wrong += [f"{origin} imports upwards: {found.arrows[origin, to]}" for origin, to in found.upwards()]
    if len(found.arrows) > most:
        wrong.append(
            f"{len(found.arrows)} arrows between rooms, at most {most} are allowed: move shared code to the room "
            "that it belongs to (`python -m hack.lint.rooms` lists them)"
        )
    return wrong


def main() -> None:
    """Print the arrows, each with one of the imports that make it."""
    found = current()
    for room in found.rooms:
        for origin, to in sorted(found.arrows):
            if origin == room:
                print(f"{origin} -> {to}   ({found.arrows[origin, to]})")
    print(f"{len(found.rooms)} rooms, {len(found.arrows)} arrows")


if __name__ == "__main__":
    main()
