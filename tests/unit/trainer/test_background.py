"""Work in the background of the thread that trains: one task at a time, and no failure gets lost."""

import threading

import pytest

from ddpjob_trainer.checkpointing.background import Background


def test_the_reason_of_a_failure_is_kept_until_it_is_asked_for_and_returned_once() -> None:
    background = Background()
    assert background.wait() is None
    background.start(lambda: "disk full")
    assert background.wait() == "disk full"
    assert not background.failed
    assert background.wait() is None
    background.start(lambda: None)
    assert background.wait() is None


def test_work_waits_for_nobody_and_two_at_once_are_refused() -> None:
    background, go = Background(), threading.Event()

    def work() -> str | None:
        return None if go.wait(60) else "nobody let it go on"

    background.start(work)
    assert not background.failed
    with pytest.raises(RuntimeError, match="has not been waited for"):
        background.start(work)
    go.set()
    assert background.wait() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exception_that_nobody_expected_is_a_failure_too() -> None:
    background = Background()

    def work() -> str | None:
        raise MemoryError("no room for it")

    background.start(work)
    assert background.wait() == "MemoryError: no room for it"
