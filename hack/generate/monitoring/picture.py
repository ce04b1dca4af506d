"""Draw docs/images/job-dashboard.png from what tests/kind/test_monitoring.py read from a real Prometheus.

python -m hack.generate.monitoring.picture
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hack.cache import BUILD, ROOT

DATA: Final = BUILD / "results/job-dashboard.json"
PICTURE: Final = ROOT / "docs/images/job-dashboard.png"
_COLUMNS: Final = 3
# A gap in a line wherever a series was away for longer, as while its processes start again.
_GAP_SECONDS: Final = 2.5
_MEGABYTE: Final = 1e6
_BEGINS_WITH: Final = "Loss"
_BEFORE_SECONDS: Final = 3.0
_HEADROOM: Final = 1.1
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Graph:
    """The lines of a panel, by their names."""

    title: str
    unit: str
    lines: tuple[tuple[str, tuple[Point, ...]], ...]


def graphs(data: dict[str, Any]) -> list[Graph]:
    """Panels that have something to draw; times are seconds since the first value."""
    begun = data["since"]
    found: dict[str, Graph] = {}
    for target in data["targets"]:
        if target["annotation"] or not target["series"]:
            continue
        lines = tuple(
            (each["name"], tuple((at - begun, value) for at, value in each["values"])) for each in target["series"]
        )
        known = found.get(target["title"], Graph(target["title"], target["unit"], ()))
        found[target["title"]] = Graph(known.title, known.unit, (*known.lines, *lines))
    return [graph for graph in found.values() if any(len(points) > 1 for _, points in graph.lines)]


def marks(data: dict[str, Any]) -> list[tuple[str, float]]:
    """Name and first second of each annotation that was there: when a restart was reported, not what it came from."""
    return [
        (target["title"], series["values"][0][0] - data["since"])
        for target in data["targets"]
        if target["annotation"]
        for series in target["series"]
    ]


def with_gaps(points: Sequence[Point]) -> list[Point]:
    """The points, with one that is not a number wherever the series was missing."""
    drawn: list[Point] = []
    for at, value in points:
        if drawn and at - drawn[-1][0] > _GAP_SECONDS:
            drawn.append((at, float("nan")))
        drawn.append((at, value))
    return drawn


def draw(data: dict[str, Any], title: str) -> Figure:
    """All graphs of a run in one figure."""
    wanted = [graph for graph in graphs(data) if graph.title not in _NUMBERS]
    rows = -(-len(wanted) // _COLUMNS)
    figure = Figure(figsize=(13, 2.3 * rows + 0.5), dpi=72, layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes: list[Axes] = list(figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True).flat)
    first = min(points[0][0] for graph in wanted if graph.title == _BEGINS_WITH for _, points in graph.lines)
    for graph, axis in zip(wanted, axes, strict=False):
        _draw(graph, axis)
        axis.set_xlim(left=max(0.0, first - _BEFORE_SECONDS))
        for _, at in marks(data):
            axis.axvline(at, color="tab:orange", linestyle="--", linewidth=1)
    for axis in axes[len(wanted) :]:
        axis.set_visible(False)
    figure.supxlabel("seconds", fontsize=8)
    return figure


# Single values in Grafana, which graphs next to them show as well.
_NUMBERS: Final = ("Phase", "Progress", "Time left", "Restarts", "Last failure", "Stalled")


def _draw(graph: Graph, axis: Axes) -> None:
    for name, points in graph.lines:
        drawn = with_gaps(points)
        axis.plot([at for at, _ in drawn], [value for _, value in drawn], label=name, linewidth=1.2)
    axis.set_title(graph.title, fontsize=9)
    axis.tick_params(labelsize=7)
    axis.grid(visible=True, alpha=0.3)
    highest = max(value for _, points in graph.lines for _, value in points)
    axis.set_ylim(bottom=0, top=_HEADROOM * highest if highest > 0 else None)
    axis.legend(fontsize=6, loc="best")
    if graph.unit == "percentunit":
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    elif graph.unit == "bytes":
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / _MEGABYTE:.0f} MB"))
    elif graph.unit == "s" or graph.unit.startswith("suffix:"):
        axis.set_ylabel(graph.unit.removeprefix("suffix:").strip(), fontsize=7)


def main(data: Path = DATA, picture: Path = PICTURE) -> None:
    """Draw the picture; exits with a message where the test has left nothing."""
    if not data.is_file():
        sys.exit(f"{data.relative_to(ROOT)} does not exist: tests/kind/test_monitoring.py writes it")
    title = "The job dashboard's queries over one run: 4 ranks on 2 nodes; dashed: the restart after a kill is reported"
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(json.loads(data.read_text()), title).savefig(picture)
    print(f"drew {picture.relative_to(ROOT)}, {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
