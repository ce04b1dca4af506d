"""What a rank does and since when, and when its watchdog speaks."""

import io
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.process.activity import Activity, Pulse
from ddpjob_trainer.process.watchdog import Watchdog, dump_stacks

DEADLINE = 10.0


class Rank:
    """A rank whose clock is set by the test, watched all the time."""

    def __init__(self) -> None:
        self.now = 500.0
        self.said: list[str] = []
        self.pulse = Pulse(lambda: self.now)
        self.watchdog = Watchdog(3, self.pulse, DEADLINE, self.said.append)

    def wait(self, seconds: float) -> int:
        """Let time go by; how often the watchdog has spoken so far."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + DEADLINE / 7, until)
            self.watchdog.check()
        return len(self.said)


def test_before_the_first_step_a_rank_is_starting_and_never_judged() -> None:
    rank = Rank()
    assert rank.wait(100 * DEADLINE) == 0
    moment = rank.pulse.moment()
    assert (moment.activity, moment.activity_seconds) == (Activity.STARTING, 1000.0)
    assert (moment.step, moment.seconds_since_step) == (None, None)


def test_a_stall_is_reported_once_with_rank_step_activity_and_how_long() -> None:
    rank = Rank()
    rank.pulse.step_finished(41)
    rank.now += 4
    rank.pulse.change(Activity.DATA)
    assert rank.wait(5.9) == 0
    assert rank.wait(0.2) == 1
    assert rank.said[0].startswith("rank 3 has not finished a step for 10 s: step 41 is done, activity data for 6 s;")
    assert rank.wait(100 * DEADLINE) == 1


def test_a_new_step_ends_a_stall_and_the_next_one_is_reported_again() -> None:
    rank = Rank()
    rank.pulse.step_finished(1)
    assert rank.wait(2 * DEADLINE) == 1
    rank.pulse.step_finished(2)
    assert rank.wait(0.9 * DEADLINE) == 1
    assert rank.wait(DEADLINE) == 2


@pytest.mark.parametrize("long", [Activity.CHECKPOINT, Activity.EVALUATION])
def test_what_rightly_lasts_long_has_ten_times_the_patience_and_none_is_charged_afterwards(long: Activity) -> None:
    rank = Rank()
    rank.pulse.step_finished(1)
    rank.wait(0.9 * DEADLINE)
    rank.pulse.change(long)
    assert rank.wait(9.9 * DEADLINE) == 0
    rank.pulse.change(Activity.STEP)
    assert rank.wait(0.9 * DEADLINE) == 0
    rank.pulse.change(long)
    assert rank.wait(10.1 * DEADLINE) == 1
    assert f"activity {long}" in rank.said[0]


def test_waiting_for_data_repeatedly_does_not_count_as_a_step() -> None:
    rank = Rank()
    rank.pulse.step_finished(1)
    for _ in range(20):
        rank.pulse.change(Activity.STEP)
        rank.wait(DEADLINE / 20)
        rank.pulse.change(Activity.DATA)
        rank.wait(DEADLINE / 20)
    assert len(rank.said) == 1


def test_a_training_that_is_done_may_go_on_with_something_else() -> None:
    rank = Rank()
    rank.pulse.step_finished(1)
    rank.pulse.change(Activity.FINISHED)
    assert rank.wait(100 * DEADLINE) == 0


def test_a_loop_that_tells_nothing_but_its_steps_is_within_one() -> None:
    rank = Rank()
    rank.pulse.step_finished(1)
    assert rank.pulse.moment().activity is Activity.STEP
    assert rank.wait(1.1 * DEADLINE) == 1


@given(st.lists(st.one_of(st.sampled_from(list(Activity)), st.integers(0, 9), st.floats(0, 20)), max_size=60))
def test_whatever_a_rank_tells_its_seconds_fit_together(told: list[Activity | int | float]) -> None:
    rank = Rank()
    for each in told:
        if isinstance(each, Activity):
            rank.pulse.change(each)
        elif isinstance(each, int):
            rank.pulse.step_finished(each)
        else:
            rank.now += each
        moment = rank.pulse.moment()
        assert moment.activity_seconds >= 0
        assert (moment.step is None) == (moment.seconds_since_step is None)
        if moment.seconds_since_step is not None:
            assert 0 <= moment.quiet_seconds <= moment.seconds_since_step


def test_the_thread_speaks_by_itself_and_ends_when_it_is_closed() -> None:
    spoken = threading.Event()
    pulse = Pulse()
    watchdog = Watchdog(0, pulse, 0.01, lambda _: spoken.set())
    pulse.step_finished(1)
    watchdog.start()
    assert spoken.wait(60)
    watchdog.close()
    assert "ddpjob-watchdog" not in {thread.name for thread in threading.enumerate()}


def wait_in_a_function_with_a_name(here: threading.Event, leave: threading.Event) -> None:
    here.set()
    leave.wait()


def test_the_dump_shows_the_head_and_where_every_thread_is(capsys: pytest.CaptureFixture[str]) -> None:
    here, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=wait_in_a_function_with_a_name, args=(here, leave))
    thread.start()
    here.wait()
    dump_stacks("rank 3 hangs")
    leave.set()
    thread.join()
    said = capsys.readouterr().err
    assert said.startswith("rank 3 hangs\n")
    assert "in wait_in_a_function_with_a_name" in said
    assert "in test_the_dump_shows_the_head" in said


def test_where_the_training_hangs_is_shown_until_it_continues() -> None:
    rank = Rank()
    rank.pulse.step_finished(7)
    assert rank.watchdog.stack(7) is None
    rank.wait(2 * DEADLINE)
    stack = rank.watchdog.stack(7)
    assert stack is not None
    assert "test_where_the_training_hangs_is_shown_until_it_continues" in stack
    assert rank.watchdog.stack(8) is None


def test_a_closed_stream_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    dump_stacks("rank 3 hangs")
