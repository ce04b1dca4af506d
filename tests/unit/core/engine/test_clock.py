from datetime import UTC, datetime, timedelta

import pytest

from ddpjob_core.engine.clock import SteadyClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class Machine:
    """The clocks of a machine whose time may be set."""

    def __init__(self) -> None:
        self.passed, self.ahead = 100.0, 0.0

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.passed + self.ahead)

    def monotonic(self) -> float:
        return self.passed


def steady() -> tuple[Machine, SteadyClock]:
    machine = Machine()
    return machine, SteadyClock(machine.wall, machine.monotonic)


def test_the_clock_is_the_machines_as_long_as_that_is_not_set() -> None:
    machine, clock = steady()
    for _ in range(3):
        assert clock() == machine.wall()
        machine.passed += 1000.5


@pytest.mark.parametrize("ahead", [-3600.0, -1.0, 1.0, 3600.0])
def test_a_minute_lasts_a_minute_whenever_the_machines_time_is_set(ahead: float) -> None:
    machine, clock = steady()
    begun = clock()
    machine.ahead = ahead
    assert clock() == begun
    machine.passed += 60
    assert timedelta(seconds=58.8) <= clock() - begun <= timedelta(seconds=61.2)


@pytest.mark.parametrize("ahead", [-60.0, 60.0])
def test_the_machines_time_is_reached_in_the_end(ahead: float) -> None:
    machine, clock = steady()
    machine.ahead, before = ahead, clock()
    for _ in range(100):
        machine.passed += 60
        assert clock() > before
        before = clock()
    assert clock() == machine.wall()
