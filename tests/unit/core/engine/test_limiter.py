"""Turns are given out in order, at a bounded rate."""

import pytest
from clock import Clock

from ddpjob_core.engine.limiter import FairLimiter, Turn


def test_tokens_are_given_out_in_the_order_in_which_they_were_asked_for(clock: Clock) -> None:
    limiter = FairLimiter(2.0, clock=clock)
    turns = {key: Turn() for key in "abcdef"}
    given = [key for key in "abcdef" if limiter.ask(turns[key]) == 0.0]
    assert given == ["a"]
    waits = {key: limiter.ask(turns[key]) for key in "bcdef"}
    assert sorted(waits, key=lambda key: waits[key]) == list("bcdef")
    assert waits["f"] == pytest.approx(2.5)
    clock.pass_by(0.5)
    # A key that asks all the time does not get ahead of one that waits.
    assert limiter.ask(turns["b"]) == 0.0
    assert limiter.ask(turns["a"]) > waits["f"] - 0.5
    clock.pass_by(2.0)
    assert [limiter.ask(turns[key]) for key in "cdef"] == [0.0] * 4


def test_the_rate_holds_over_time(clock: Clock) -> None:
    limiter = FairLimiter(50.0, clock=clock)
    turns = [Turn() for _ in range(1000)]
    written = 0
    for _ in range(200):
        written += sum(limiter.ask(turn) == 0.0 for turn in turns)
        clock.pass_by(0.05)
    assert written == pytest.approx(500, abs=30)
