"""Losses as a row of bars."""

import pytest
from cli_jobs import RUNNING, job

from ddpjob.views.job import Job
from ddpjob.views.sparkline import LossHistory, sparkline


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], "▁"),
        ([2.0, 2.0], "▁▁"),
        ([8.0, 1.0], "█▁"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "▁▂▃▄▅▆▇█"),
        ([1e300, -1e300], "█▁"),
        ([float(n) for n in range(30)], sparkline([float(n) for n in range(10, 30)])),
    ],
)
def test_a_sparkline_has_a_bar_for_each_of_the_newest_values(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def at_step(step: int, loss: float) -> Job:
    return job(**{**RUNNING, "progress": {"step": step, "loss": loss}})


def test_a_history_takes_each_step_once_and_forgets_jobs_that_are_gone() -> None:
    history = LossHistory()
    for seen in (at_step(1, 4.0), at_step(1, 4.0), at_step(2, 1.0)):
        history.see([seen])
    assert history.line(at_step(2, 1.0)) == "█▁"
    history.see([])
    history.see([at_step(3, 1.0)])
    assert history.line(at_step(3, 1.0)) == "▁"
