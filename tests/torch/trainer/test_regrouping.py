"""Process groups that follow each other in processes that stay leave nothing behind."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
from training import whole

PROGRAM = str(Path(__file__).with_name("programs") / "regroups.py")


@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_no_descriptor_and_no_thread_is_left_by_a_group_that_was_left(times: int) -> None:
    ranks = 3
    output = whole(ranks, PROGRAM, str(times)).output
    found = re.findall(r"RANK (\d) (\d+) (\d+) (\d+) (\d+)", output)
    settled = {rank: counts for rank, regroups, *counts in found if regroups != str(times)}
    last = {rank: counts for rank, regroups, *counts in found if regroups == str(times)}
    assert len(settled) == len(last) == ranks, output
    for rank, (files, threads, _) in settled.items():
        assert last[rank][:2] == [files, threads], output
        assert int(last[rank][2]) == ranks * 1000 * (times + 1)
