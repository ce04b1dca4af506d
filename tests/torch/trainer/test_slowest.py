"""Of real ranks, the one that slows down the others is named, with what it does; and none if they are alike."""

import json
from pathlib import Path

import pytest
from training import whole

PROGRAM = str(Path(__file__).with_name("programs") / "slow_rank.py")


def named_in(folder: Path, *options: str, ranks: int = 2) -> list[tuple[int, float, str] | None]:
    """Whom rank 0 names, one after the other."""
    training = whole(ranks, PROGRAM, str(folder), *options)
    lines = [line.partition("slowest ") for line in training.output.splitlines() if line.startswith("slowest ")]
    return [None if (found := json.loads(text)) is None else tuple(found) for _, _, text in lines]


@pytest.mark.parametrize(
    ("rank", "part", "what", "more"),
    [
        (1, "data", "Data", ()),
        (1, "forward", "Computing", ()),
        (1, "backward", "Computing", ()),
        (0, "checkpoint", "Checkpoint", ()),
        # The others wait for rank 0's buffers already in their forward pass.
        (0, "data", "Data", ("--buffers",)),
        (0, "forward", "Computing", ("--buffers",)),
        (1, "backward", "Computing", ("--session",)),
        (1, "data", "Data", ("--accumulate", "2", "--steps", "12")),
        (0, "backward", "Computing", ("--accumulate", "2", "--steps", "12", "--session")),
    ],
    ids=lambda value: "-".join(value).strip("-") if isinstance(value, tuple) else str(value),
)
def test_the_rank_that_the_others_wait_for_is_named_with_what_it_does(
    tmp_path: Path, rank: int, part: str, what: str, more: tuple[str, ...]
) -> None:
    named = named_in(tmp_path, "--rank", str(rank), "--part", part, *more)
    assert named
    assert {(each[0], each[2]) for each in named if each is not None} == {(rank, what)}
    last = named[-1]
    assert last is not None
    # 70 ms instead of 10, and what a busy machine adds to both.
    assert last[1] >= 1.5


def test_ranks_that_are_alike_name_nobody(tmp_path: Path) -> None:
    # Long enough that what a busy machine adds to one of them is a small part.
    assert named_in(tmp_path, "--buffers", "--always", "0.06") == []


def test_a_training_of_one_rank_names_nobody(tmp_path: Path) -> None:
    assert named_in(tmp_path, "--rank", "0", "--part", "data", ranks=1) == []
