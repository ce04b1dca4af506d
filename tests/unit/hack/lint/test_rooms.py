from pathlib import Path

from hack.lint.rooms import complaints, layers, plan

ROOMS = ["shop", "desk.front", "desk.back", "cellar"]


def sources(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_rooms_are_the_layers_of_the_contract_from_the_top() -> None:
    project = """\
[[tool.importlinter.contracts]]
name = "another"
layers = ["cellar"]
[[tool.importlinter.contracts]]
name = "rooms import downwards only"
layers = ["shop", "desk.front | desk.back", "cellar"]
"""
    assert layers(project) == ROOMS


def test_every_spelling_of_an_import_is_one_arrow(tmp_path: Path) -> None:
    found = plan(
        ROOMS,
        sources(
            tmp_path,
            shop__till="import os\nimport cellar\nfrom cellar import wine",
            shop__door="def late():\n    from desk.front import bell",
            desk__front__bell="from ..back.paper import sheet\nfrom . import sound",
            desk__front__sound="",
            desk__back__paper="from cellar.wine import bottle",
            cellar__wine="",
        ),
    )
    assert sorted(found.arrows) == [
        ("desk.back", "cellar"),
        ("desk.front", "desk.back"),
        ("shop", "cellar"),
        ("shop", "desk.front"),
    ]
    assert complaints(found, most=4) == []
    assert found.direct() == [("shop", "desk.front"), ("desk.front", "desk.back"), ("desk.back", "cellar")]


def test_the_door_of_a_package_offers_what_is_in_its_rooms_and_is_not_a_way_between_them(tmp_path: Path) -> None:
    folder = sources(tmp_path, desk__front="", shop="import desk")
    (folder / "desk/__init__.py").write_text("from desk.front import bell")
    found = plan(ROOMS, folder)
    assert (found.arrows, found.outside) == ({}, {"desk"})


def test_an_arrow_upwards_a_module_in_no_room_and_too_many_arrows_are_named(tmp_path: Path) -> None:
    found = plan(ROOMS, sources(tmp_path, cellar__wine="import shop.till", shop__till="import attic", attic=""))
    *wrong, too_many = complaints(found, most=0)
    assert wrong == [
        "attic is in none of the rooms that pyproject.toml lists",
        "cellar imports upwards: cellar.wine -> shop.till",
    ]
    assert too_many.startswith("1 arrows between rooms, at most 0 are allowed")
