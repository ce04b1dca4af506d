"""How much memory saves and a resume take beyond the state of the training, which each rank has once."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
from training import whole

PROGRAM = str(Path(__file__).with_name("programs") / "memory.py")
NONE = 8 << 20
"""Bytes that are none: what an allocator takes now and then."""
LITTLE = 24 << 20
"""Bytes that are few for a small state: a piece of a tensor that is on its way, and what any work takes."""


@pytest.mark.parametrize("mebibytes", [48, pytest.param(1056, marks=pytest.mark.full)])
def test_the_state_is_in_memory_once(tmp_path: Path, mebibytes: int) -> None:
    output = whole(2, PROGRAM, str(tmp_path), str(mebibytes), "save").output
    output += whole(2, PROGRAM, str(tmp_path), str(mebibytes), "resume").output
    found = re.findall(r"RANK (\d) (\S+) (-?\d+) (\d+)", output)
    peaks = {(int(rank), name): int(peak) for rank, name, peak, _ in found}
    state = int(found[0][3])
    assert state == mebibytes << 20
    little = max(0.15 * state, LITTLE)
    for step in (1, 2):
        assert peaks[0, f"synchronous-{step}"] <= little
        assert peaks[1, f"synchronous-{step}"] <= NONE
        assert peaks[1, f"asynchronous-{step}"] <= NONE
    assert state <= peaks[0, "asynchronous-1"] <= state + little
    assert peaks[0, "asynchronous-2"] <= little
    for rank in (0, 1):
        assert state <= peaks[rank, "resume"] <= state + little
        assert peaks[rank, "again"] <= little
