"""What the benchmark of changes of size makes of what it saw."""

import pytest

from hack.bench.recovery.marks import Mark
from hack.bench.resize.report import Change, Sample, page


def process(rank: int, name: str, started: float, *steps: float) -> list[Mark]:
    return [
        Mark(rank, name, "started", started),
        Mark(rank, name, "imported", started + 1),
        Mark(rank, name, "met", started + 2),
        *(Mark(rank, name, "step", at, number) for number, at in enumerate(steps)),
    ]


def test_a_training_is_interrupted_from_the_last_step_of_its_old_processes_on() -> None:
    marks = [
        *process(0, "old-0", 50, 60, 103),
        *process(0, "new-0", 104, 108, 109),
        *process(1, "new-1", 105, 109, 110),
    ]
    assert Sample.of(100, marks, 2) == Sample(total=9, interrupted=6)


def test_ranks_that_have_not_made_a_step_are_waited_for() -> None:
    with pytest.raises(ValueError, match="not all ranks"):
        Sample.of(100, process(0, "new-0", 104, 108), 2)


def test_the_table_has_a_row_for_each_change_and_way() -> None:
    found = {change: [Sample(9, 6), Sample(11, 7)] for change in Change}
    text = page(found, found, "abc", "--runs 2")
    assert "| 2 to 1 nodes | `kubectl scale` | 2 | 9.0 / 11.0 | 6.0 / 7.0 |" in text
    assert text.count("suspend, scale, resume") == 2
