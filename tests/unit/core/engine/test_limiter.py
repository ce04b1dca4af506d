"""Turns are given out in order, at a bounded rate."""

import pytest
from clock import Clock

from ddpjob_core.engine.limiter import FairLimiter, Turn


def test_tokens_are_given_out_in_the_order_in_which_they_were_asked_for(clock: Clock) -> None:
    limiter = FairLimiter(2.0, clock=clock)
    turns = {key: Turn() for key in "abcdef"}
    given = [key for key in "abcdef" if limiter.ask(turns[key], "team") == 0.0]
    assert given == ["a"]
    waits = {key: limiter.ask(turns[key], "team") for key in "bcdef"}
    assert sorted(waits, key=lambda key: waits[key]) == list("bcdef")
    assert waits["f"] == pytest.approx(2.5)
    clock.pass_by(0.5)
    # A key that asks all the time does not get ahead of one that waits.
    assert limiter.ask(turns["b"], "team") == 0.0
    assert limiter.ask(turns["a"], "team") > waits["f"] - 0.5
    clock.pass_by(2.0)
    assert [limiter.ask(turns[key], "team") for key in "cdef"] == [0.0] * 4


def test_the_rate_holds_over_time(clock: Clock) -> None:
    limiter = FairLimiter(50.0, clock=clock)
    turns = [Turn() for _ in range(1000)]
    written = 0
    for _ in range(200):
        written += sum(limiter.ask(turn, "team") == 0.0 for turn in turns)
        clock.pass_by(0.05)
    assert written == pytest.approx(500, abs=30)


def test_a_namespace_with_thousands_of_jobs_does_not_keep_another_ones_waiting(clock: Clock) -> None:
    limiter = FairLimiter(50.0, clock=clock)
    busy = [Turn() for _ in range(10_000)]
    for turn in busy:
        limiter.ask(turn, "busy")
    mine, written = Turn(), 0
    for _ in range(100):
        waited = 0.0
        while (seconds := limiter.ask(mine, "team")) > 0:
            waited += seconds
            clock.pass_by(seconds)
        written += 1
        assert waited <= 2.5 / 50
    assert written == 100


def test_a_job_that_wrote_for_another_reason_gives_its_place_up(clock: Clock) -> None:
    limiter = FairLimiter(1.0, clock=clock)
    turns = [Turn() for _ in range(4)]
    waits = [limiter.ask(turn, "team") for turn in turns]
    limiter.leave(turns[2])
    limiter.leave(turns[2])
    assert limiter.ask(turns[3], "team") == pytest.approx(waits[2])
    clock.pass_by(100)
    limiter.ask(turns[1], "team")
    limiter.leave(turns[3])
    assert limiter.ask(turns[3], "team") >= 0
    limiter.leave(turns[3])
    assert not limiter._groups
