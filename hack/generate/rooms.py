"""The drawing of the rooms of operator/ in docs/architecture.md."""

from collections import defaultdict
from typing import Final

from hack.cache import ROOT
from hack.lint.rooms import Plan, current

PAGE: Final = "docs/architecture.md"
_BEGIN: Final = "<!-- Generated from the imports of operator/ by `python -m hack.generate`; do not edit. -->"
_END: Final = "<!-- End of what is generated. -->"


def architecture_page() -> str:
    """The page with the drawing as it must be.

    Raises:
        ValueError: the page lost the comments between which the drawing is.
    """
    before, begin, rest = (ROOT / PAGE).read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE} must have the lines {_BEGIN!r} and {_END!r}")
    return f"{before}{begin}\n\n{drawing(current())}\n{end}{after}"


def drawing(plan: Plan) -> str:
    """Rooms and arrows in Mermaid, and the sentence that says what was left out."""
    packages: dict[str, list[str]] = defaultdict(list)
    for room in plan.rooms:
        packages[room.partition(".")[0]].append(room)
    lines = ["```mermaid", "flowchart TD"]
    for package, rooms in packages.items():
        if rooms == [package]:
            lines.append(f"  {package}")
            continue
        lines.append(f"  subgraph {package}")
        lines += [f"    {_node(room)}[{room.partition('.')[2]}]" for room in rooms]
        lines.append("  end")
    shown = plan.direct()
    lines += [f"  {_node(origin)} --> {_node(to)}" for origin, to in shown]
    lines += [
        "```",
        "",
        f"{len(plan.rooms)} rooms and {len(plan.arrows)} arrows, all of them downwards. {len(shown)} are drawn: an",
        "arrow is left out where a longer way leads to the same room.",
    ]
    return "\n".join(lines) + "\n"


def _node(room: str) -> str:
    """A room by a name that Mermaid takes."""
    return room.replace(".", "_")
