"""How much memory saves and a resume take beyond the state of the training, which each rank has once."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
from training import whole

PROGRAM = str(Path(__file__).with_name("programs") / "memory.py")
NONE = 8 << 20
"""Bytes that are none: what an allocator takes now and then."""
LITTLE = (16 + 12) << 20
"""Bytes that are few for a small state: a tensor of 16 MiB that is on its way, and the code that runs first now."""


def measured(folder: Path, mebibytes: int, *options: str) -> dict[tuple[int, str], int]:
    """Bytes at the peak by rank and what it did."""
    output = whole(2, PROGRAM, str(folder), str(mebibytes), "save", *options).output
    output += whole(2, PROGRAM, str(folder), str(mebibytes), "resume", *options).output
    found = re.findall(r"RANK (\d) (\S+) (-?\d+) (\d+)", output)
    assert int(found[0][3]) == mebibytes << 20
    return {(int(rank), name): int(peak) for rank, name, peak, _ in found}


@pytest.mark.parametrize("mebibytes", [96, pytest.param(1056, marks=pytest.mark.full)])
def test_no_rank_has_the_parts_of_others_in_memory(tmp_path: Path, mebibytes: int) -> None:
    peaks = measured(tmp_path, mebibytes, "divided")
    # The model, and AdamW's two tensors for each of its parameters.
    third = (mebibytes << 20) // 3
    little = max(0.15 * 3 * third, LITTLE)
    for rank in (0, 1):
        for step in (1, 2):
            assert peaks[rank, f"synchronous-{step}"] <= little
        kept = 2 * third if rank == 0 else third
        assert kept <= peaks[rank, "asynchronous-1"] <= kept + little
        assert peaks[rank, "asynchronous-2"] <= little
        assert 2 * third <= peaks[rank, "resume"] <= 2 * third + little
        assert peaks[rank, "again"] <= little


@pytest.mark.parametrize("mebibytes", [48, pytest.param(1056, marks=pytest.mark.full)])
def test_the_state_is_in_memory_once(tmp_path: Path, mebibytes: int) -> None:
    peaks, state = measured(tmp_path, mebibytes), mebibytes << 20
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
