"""The drawing of the rooms in docs/architecture.md."""

from pathlib import Path

import pytest

from hack.generate import rooms
from hack.lint.rooms import Plan


def arrows(*pairs: tuple[str, str]) -> dict[tuple[str, str], str]:
    return {pair: f"{pair[0]}.module -> {pair[1]}.module" for pair in pairs}


def test_an_arrow_is_drawn_unless_a_longer_path_leads_to_the_same_room() -> None:
    plan = Plan(
        ["client.cli", "client.views", "core"],
        arrows(("client.cli", "client.views"), ("client.views", "core"), ("client.cli", "core")),
        frozenset(),
    )
    drawn = rooms.drawing(plan)
    assert drawn.splitlines()[:9] == [
        "```mermaid",
        "flowchart TD",
        "  subgraph client",
        "    client_cli[cli]",
        "    client_views[views]",
        "  end",
        "  core",
        "  client_cli --> client_views",
        "  client_views --> core",
    ]
    assert "3 rooms and 3 arrows, all of them downwards. 2 are drawn" in drawn


def test_a_page_without_a_place_for_the_drawing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / rooms.PAGE).write_text("# Architecture\n")
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"docs/architecture.md must have the lines '<!-- rooms:begin"):
        rooms.architecture_page()
