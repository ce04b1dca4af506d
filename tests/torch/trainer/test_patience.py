"""Rank 0 may work alone for longer than a collective may take."""

import threading
from pathlib import Path

import pytest
from training import plain

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from ddpjob_trainer.process.patience import Patience  # noqa: E402

PROGRAM = str(Path(__file__).with_name("programs") / "patient.py")


def test_the_others_wait_for_rank_0_at_each_point() -> None:
    store, reached = dist.HashStore(), list[int]()
    first, other = Patience(store, first=True), Patience(store, first=False)
    at_a_point = threading.Event()

    def come() -> None:
        for point in range(200):
            other.wait()
            reached.append(point)
            at_a_point.set()

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    for point in range(200):
        assert len(reached) == point
        first.wait()
        assert at_a_point.wait(60)
        at_a_point.clear()
    thread.join(60)
    assert reached == list(range(200))
    # The store does not grow with each point.
    assert store.num_keys() < 100


@pytest.mark.full
def test_an_evaluation_a_save_a_load_and_the_end_of_rank_0_may_take_longer_than_a_collective(tmp_path: Path) -> None:
    ranks = plain(2, PROGRAM, str(tmp_path), "3")
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
