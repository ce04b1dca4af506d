"""Dashboards as plain data, and their JSON in Grafana's own schema."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard

SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The Prometheus data source that the dashboard's variable selects, so that no name is fixed."""
_TAG: Final = "ddpjob"
_HEIGHT: Final = 7
_STAT_HEIGHT: Final = 4

AnyPanel = TypeVar("AnyPanel", timeseries.Panel, stat.Panel)


class Show(StrEnum):
    """How a panel shows its values."""

    LINES = "lines"
    STACK = "stack"
    """Stacked lines, for parts of a whole."""
    BARS = "bars"
    """Bars, for occasional events."""
    VALUE = "value"
    """The latest value as a number."""
    NAME = "name"
    """The legend of the latest value, for series whose value is always 1."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the legend of its series, which may contain labels such as {{rank}}."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel. Its unit is one of Grafana's, or `suffix: ...`; a row is 24 wide."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    show: Show = Show.LINES
    width: int = 8
    most: float | None = None
    """The maximum of the axis, if it is known."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mark on all graphs at each time at which its query has a value."""

    name: str
    expression: str
    color: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard with variables for the data source, `namespace` and `ddpjob`."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]
    annotations: tuple[Annotation, ...] = ()
    many: bool = False
    """Whether several namespaces and jobs, or all, can be selected."""


def render(wanted: Dashboard) -> str:
    """The dashboard as JSON that Grafana can import."""
    built = (
        builders.Dashboard(wanted.title)
        .uid(wanted.uid)
        .description(wanted.text)
        .tags([_TAG])
        .editable()
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-1h", "now")
        .variables([_source_variable(), *_job_variables(many=wanted.many)])
        .annotations([_annotation(annotation) for annotation in wanted.annotations])
        .link(_link_to_the_others())
    )
    number = 0
    for row in wanted.rows:
        number += 1
        built.with_row(builders.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            built.with_panel(_panel(panel, number))
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _panel(panel: Panel, number: int) -> timeseries.Panel | stat.Panel:
    if panel.show in (Show.VALUE, Show.NAME):
        return _stat(panel, number)
    legend = common_builders.VizLegendOptions().show_legend(show_legend=True).placement(common.LegendPlacement.BOTTOM)
    graph = _common(timeseries.Panel(), panel, number).height(_HEIGHT).legend(legend.calcs(["lastNotNull"]))
    graph.fill_opacity(10).show_points(common.VisibilityMode.AUTO).axis_soft_min(0)
    if panel.show is Show.STACK:
        graph.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(40)
    elif panel.show is Show.BARS:
        graph.draw_style(common.GraphDrawStyle.BARS).fill_opacity(60)
    return graph


def _stat(panel: Panel, number: int) -> stat.Panel:
    newest = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    text = common.BigValueTextMode.NAME if panel.show is Show.NAME else common.BigValueTextMode.AUTO
    shown = _common(stat.Panel(), panel, number).height(_STAT_HEIGHT).reduce_options(newest).text_mode(text)
    return shown.graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.NONE)


def _common(built: AnyPanel, panel: Panel, number: int) -> AnyPanel:
    built.id(number).title(panel.title).description(panel.text).unit(panel.unit).span(panel.width).datasource(SOURCE)
    # Otherwise Grafana shows "No data", which looks like an error in the dashboard.
    built.no_value("none").min(0)
    if panel.most is not None:
        built.max(panel.most)
    for index, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).range()
        built.with_target(target.ref_id(chr(ord("A") + index)).datasource(SOURCE))
    return built


def _source_variable() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _job_variables(*, many: bool) -> Iterable[builders.QueryVariable]:
    # From the operator's metrics, because it also knows jobs that expose no metrics.
    series = "ddpjob_operator_job_phase"
    matches = "=~" if many else "="
    namespaces = f"label_values({series}, namespace)"
    jobs = f'label_values({series}{{namespace{matches}"$namespace"}}, ddpjob)'
    for name, query in (("namespace", namespaces), ("ddpjob", jobs)):
        variable = (
            builders.QueryVariable(name)
            .label("Namespace" if name == "namespace" else "DDPJob")
            .query(query)
            .datasource(SOURCE)
            .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
            .multi(many)
            .include_all(many)
        )
        if many:
            variable.all_value(".*").current(dashboard.VariableOption(selected=True, text=["All"], value=["$__all"]))
        yield variable


def _annotation(annotation: Annotation) -> builders.AnnotationQuery:
    built = builders.AnnotationQuery().name(annotation.name).datasource(SOURCE).expr(annotation.expression)
    return built.enable(enable=True).icon_color(annotation.color)


def _link_to_the_others() -> builders.DashboardLink:
    link = builders.DashboardLink("ddpjob").type(dashboard.DashboardLinkType.DASHBOARDS).tags([_TAG])
    return link.as_dropdown(as_dropdown=True).include_vars(include_vars=True).keep_time(keep_time=True)
