"""What the recovery benchmark makes of what it saw."""

import json
from pathlib import Path

import pytest

from hack.bench.recovery.faults import Fault
from hack.bench.recovery.floor import Floor
from hack.bench.recovery.marks import Mark, Recovery, newest_steps, read_marks, recovery_after
from hack.bench.recovery.report import Sample, quantile, report
from hack.bench.recovery.watch import PodTimes

FAULT = 100.0


def process(rank: int, name: str, started: float) -> list[Mark]:
    """The marks of a process that makes two steps."""
    moments = {"started": started, "imported": started + 1, "met": started + 2, "step": started + 3}
    first = [Mark(rank, name, what, at, 7 if what == "step" else None) for what, at in moments.items()]
    return [*first, Mark(rank, name, "step", started + 4, 8)]


def test_a_training_is_back_when_the_slowest_rank_makes_its_first_step_in_a_new_process() -> None:
    marks = [*process(0, "old-0", 50), *process(1, "old-1", 50), *process(0, "new-0", 101), *process(1, "new-1", 102)]
    # The steps 7 and 8 were finished before.
    assert recovery_after(marks, FAULT, 2) == Recovery(102, 103, 104, 105, 2)


def test_a_rank_that_goes_on_in_its_old_process_is_not_back() -> None:
    marks = [*process(0, "old-0", 97.5), *process(1, "new-1", 102)]
    assert recovery_after(marks, FAULT, 2) is None


def test_a_rank_that_keeps_its_process_is_back_with_its_first_step_after_it_has_met_the_new_one() -> None:
    kept = [Mark(0, "kept", "step", at, step) for at, step in ((99.8, 6), (100.1, 7), (105.5, 8), (106.5, 9))]
    new = [Mark(1, "new-1", what, at) for what, at in (("started", 102), ("imported", 103), ("met", 104))]
    marks = [*kept, *new, Mark(1, "new-1", "step", 105.4, 8)]
    assert recovery_after(marks, FAULT, 2) == Recovery(102, 103, 104, 105.5, 0)
    # A step that was finished before the fault, and is made again.
    assert recovery_after([*kept, *new, Mark(1, "new-1", "step", 105.4, 6)], FAULT, 2) == Recovery(
        102, 103, 104, 105.5, 1
    )


def test_a_process_that_made_no_step_before_it_was_started_again_does_not_count() -> None:
    wasted = [Mark(1, "wasted", "started", 101), Mark(1, "wasted", "imported", 102)]
    marks = [*process(0, "new-0", 101), *wasted, *process(1, "new-1", 110)]
    found = recovery_after(marks, FAULT, 2)
    assert found is not None
    assert found.stepped == 113


def test_a_line_that_is_just_being_written_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps({"rank": 1, "pid": 3, "at": 5.0, "what": "step", "step": 2})
    (tmp_path / "1-host-3.jsonl").write_text(f"{whole}\n{whole[:20]}")
    (mark,) = read_marks(tmp_path)
    assert mark == Mark(1, "1-host-3", "step", 5.0, 2, 3)
    assert newest_steps([mark]) == {1: mark}


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ([], 0.5, None),
        ([3.0], 0.95, 3.0),
        ([float(n) for n in range(1, 21)], 0.5, 10.0),
        ([float(n) for n in range(1, 21)], 0.95, 19.0),
        ([1.0, None, 2.0], 0.5, 2.0),
        ([1.0, None], 0.95, None),
    ],
)
def test_a_quantile_counts_what_never_came_as_the_latest(
    values: list[float | None], part: float, expected: float | None
) -> None:
    assert quantile(values, part) == expected


def test_a_sample_tells_the_parts_of_a_recovery() -> None:
    old, new = PodTimes(created=10, running=11, gone=102), PodTimes(created=103, running=104)
    sample = Sample.of(FAULT, Recovery(105, 106, 107, 108), [new], [old], 101.0)
    assert sample == Sample(1, 2, 4, 5, 6, 7, 8, 0)


def test_inside_running_pods_no_pod_comes_or_goes() -> None:
    sample = Sample.of(FAULT, Recovery(105, 106, 107, 108), [], [PodTimes(created=10, running=11)], None)
    assert (sample.noticed, sample.gone, sample.running, sample.total) == (None, None, None, 8)


def test_the_page_shows_totals_against_the_floor_and_what_never_came_back() -> None:
    samples = {
        (Fault.POD, True): [Sample(1, 2, 4, 5, 6, 7, 9)] * 3,
        (Fault.POD, False): [Sample(None, None, None, None, None, None, None)],
    }
    page = report(samples, Floor(1.0, 2.0, 3.0, 2.5), [], "abc1234", "--runs 3")
    assert "| deletion of one pod | ddpjob | 3 | 9.0 / 9.0 | 3.0 | 4 s above the floor |" in page
    assert "| deletion of one pod | torchrun in a StatefulSet | 1 | - / - | - |  |" in page
    assert "6.0 s for pods;\n2.5 s for processes" in page
    assert "A dash means that training did not continue within 60 s." in page
