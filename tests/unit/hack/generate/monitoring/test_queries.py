"""Queries as they stand in dashboards and rules, made into what a Prometheus is asked."""

import math

import pytest

from hack.generate.monitoring.picture import graphs, marks, with_gaps
from hack.generate.monitoring.queries import fill, legend, operands


def test_variables_are_replaced_and_one_without_a_value_is_an_error() -> None:
    asked = fill('rate(a{namespace=~"$namespace"}[$__rate_interval])', {"namespace": ".*", "__rate_interval": "20s"})
    assert asked == 'rate(a{namespace=~".*"}[20s])'
    with pytest.raises(KeyError, match="ddpjob"):
        fill("a{ddpjob='$ddpjob'}", {})


def test_a_legend_has_the_values_of_labels() -> None:
    assert legend("rank {{rank}} tensors", {"rank": "3"}) == "rank 3 tensors"


def test_the_operands_of_an_alert_are_its_values_without_thresholds() -> None:
    assert operands('max(a) > 60\nor\nsum by (x) (increase(b{c!="200"}[10m])) >= 5.5\n') == [
        "max(a)",
        'sum by (x) (increase(b{c!="200"}[10m]))',
    ]
    assert operands("time() - max(t) > 1800\nand\nmax(p) == 1") == ["time() - max(t)", "max(p)"]
    assert operands("a\n- on (x) group_left ()\nb\n> 0.2\n") == ["a\n- on (x) group_left ()\nb"]
    assert operands("absent(d) == 1\n") == ["d"]


def test_a_picture_has_the_panels_with_lines_and_a_mark_for_each_restart() -> None:
    line = {"name": "loss", "values": [[101.0, 2.0], [102.0, 1.0]]}
    once = {"name": "restart", "values": [[105.0, 1.0]]}
    data = {
        "since": 100.0,
        "targets": [
            {"title": "Loss", "unit": "none", "series": [line], "annotation": False},
            {"title": "GPU memory", "unit": "bytes", "series": [], "annotation": False},
            {"title": "Restart", "unit": "", "series": [once], "annotation": True},
        ],
    }
    (graph,) = graphs(data)
    assert (graph.title, graph.lines) == ("Loss", (("loss", ((1.0, 2.0), (2.0, 1.0))),))
    assert marks(data) == [("Restart", 5.0)]


def test_a_line_is_broken_where_its_series_was_away() -> None:
    drawn = with_gaps([(1.0, 5.0), (2.0, 5.0), (9.0, 5.0)])
    assert [math.isnan(value) for _, value in drawn] == [False, False, True, False]
