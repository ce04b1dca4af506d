"""How often endpoints are asked when others do not answer: days of polls in a simulated time."""

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from ddpjob_core.engine.memory import JobMemory
from ddpjob_core.engine.poll_schedule import (
    KNOCKS,
    KNOCKS_PER_SECOND,
    POLLS_PER_SECOND,
    SLOTS,
    Answer,
    Endpoint,
    PollSchedule,
)
from ddpjob_core.wire.progress import PollTarget

INTERVAL = PATIENCE = 2.0
Behaviour: TypeAlias = Callable[[float], tuple[float, Answer]]
"""Given the time of a poll, the seconds that it takes and what comes of it."""


def answers(_: float) -> tuple[float, Answer]:
    return 0.01, Answer.SERVED


def refuses(_: float) -> tuple[float, Answer]:
    return 0.001, Answer.REFUSED


def silent(_: float) -> tuple[float, Answer]:
    return PATIENCE, Answer.SILENT


def until(end: float, first: Behaviour, then: Behaviour) -> Behaviour:
    return lambda now: first(now) if now < end else then(now)


@dataclass
class Simulation:
    """Endpoints that take a while to answer, or never do."""

    schedule: PollSchedule = field(
        default_factory=lambda: PollSchedule(INTERVAL, spread=random.Random(1).random)  # noqa: S311
    )
    now: float = 0.0
    asked: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busiest: int = 0
    knocks: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    batches: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._behave: dict[str, Behaviour] = {}
        self._ends: list[tuple[float, int, Endpoint, Answer]] = []
        self._order = itertools.count()
        self.memories: dict[str, JobMemory] = {}

    def job(self, namespace: str, name: str, behave: Behaviour, ranks: int = 1) -> None:
        memory = self.memories.setdefault(name, JobMemory(f"uid-{name}", (namespace, name)))
        self._behave[name] = behave
        targets = tuple(PollTarget(0, f"10.0.0.{rank}", 9401, rank, rank) for rank in range(ranks))
        self.schedule.follow(memory, targets, self.now)

    def run(self, until: float) -> None:
        while self.now < until:
            endpoint = self.schedule.take(self.now)
            if endpoint is not None:
                self._begin(endpoint)
                continue
            refusing = self.schedule.take_refusing(self.now)
            if refusing:
                self._knock(refusing)
                continue
            wait = self.schedule.wait(self.now)
            moments = [until, *([self.now + wait] if wait is not None else []), *(end[0] for end in self._ends[:1])]
            self.now = min(moments)
            while self._ends and self._ends[0][0] <= self.now:
                _, _, ended, answer = heapq.heappop(self._ends)
                self.schedule.ended(ended, self.now, answer)

    def _knock(self, endpoints: list[Endpoint]) -> None:
        self.batches.append(self.now)
        answers = []
        for endpoint in endpoints:
            name = endpoint.job.memory.key[1]
            self.asked[f"{name}/{endpoint.target.rank}"].append(self.now)
            self.knocks[name].append(self.now)
            answer = self._behave[name](self.now)[1]
            answers.append(answer if answer in (Answer.REFUSED, Answer.SILENT) else Answer.OPEN)
        self.schedule.knocked(endpoints, self.now, answers)

    def _begin(self, endpoint: Endpoint) -> None:
        name = endpoint.job.memory.key[1]
        self.asked[f"{name}/{endpoint.target.rank}"].append(self.now)
        seconds, answer = self._behave[name](self.now)
        heapq.heappush(self._ends, (self.now + seconds, next(self._order), endpoint, answer))
        self.busiest = max(self.busiest, len(self._ends))
        assert len(self._ends) <= SLOTS

    def longest_gap(self, name: str, since: float = 10.0) -> float:
        asked = [at for at in self.asked[name] if at >= since]
        return max((after - before for before, after in itertools.pairwise(asked)), default=float("inf"))


def two_hundred_dead(simulation: Simulation) -> None:
    for number in range(200):
        simulation.job("team", f"dead-{number}", silent)


def one_of_512_silent_ranks(simulation: Simulation) -> None:
    simulation.job("team", "large", silent, ranks=512)


def ten_thousand_dead(simulation: Simulation) -> None:
    for number in range(10_000):
        simulation.job("other", f"dead-{number}", silent)


def a_thousand_that_answer_at_the_last_moment(simulation: Simulation) -> None:
    for number in range(1_000):
        simulation.job("team", f"slow-{number}", lambda _: (0.95 * PATIENCE, Answer.SERVED))


def two_thousand_healthy_of_another_namespace(simulation: Simulation) -> None:
    for number in range(2_000):
        simulation.job("other", f"busy-{number}", answers)


@pytest.mark.parametrize(
    "others",
    [
        two_hundred_dead,
        one_of_512_silent_ranks,
        ten_thousand_dead,
        a_thousand_that_answer_at_the_last_moment,
        two_thousand_healthy_of_another_namespace,
    ],
)
def test_a_healthy_job_is_asked_every_two_seconds_whatever_the_others_do(others: Callable[[Simulation], None]) -> None:
    simulation = Simulation()
    others(simulation)
    simulation.job("team", "healthy", answers)
    simulation.run(60)
    assert simulation.longest_gap("healthy/0") <= INTERVAL + 0.1
    assert simulation.asked["healthy/0"][0] <= 2 * INTERVAL + PATIENCE


def test_an_endpoint_that_does_not_answer_is_asked_less_and_less_often_and_every_two_seconds_once_it_does() -> None:
    simulation = Simulation()
    simulation.job("team", "back", until(60, silent, answers))
    simulation.run(120)
    asked = simulation.asked["back/0"]
    assert len([at for at in asked if at < 60]) <= 8
    assert next(at for at in asked if at >= 60) <= 60 + 16
    assert simulation.longest_gap("back/0", since=80) == pytest.approx(INTERVAL)


def test_a_program_that_serves_no_progress_is_asked_less_and_less_often_at_last_every_ten_minutes() -> None:
    simulation = Simulation()
    simulation.job("team", "plain", refuses)
    simulation.run(3 * 3600)
    asked = simulation.asked["plain/0"]
    # A start takes seconds: until then nothing is lost.
    assert len([at for at in asked if at < 10]) >= 5
    assert len([at for at in asked if at < 600]) < 40
    assert len([at for at in asked if at >= 3600]) == pytest.approx(12, abs=1)


@pytest.mark.parametrize("begins", [3, 20, 100, 1000, 20_000])
def test_a_program_that_begins_to_serve_is_found_within_a_quarter_of_the_time_that_it_took(begins: float) -> None:
    simulation = Simulation()
    simulation.job("team", "late", until(begins, refuses, answers))
    simulation.run(begins + 700)
    found = next(at for at in simulation.asked["late/0"] if at >= begins)
    assert found - begins <= max(INTERVAL, 0.25 * begins)
    assert found - begins <= 600
    assert simulation.longest_gap("late/0", since=found) == pytest.approx(INTERVAL)


def test_those_that_refuse_are_knocked_at_together() -> None:
    simulation = Simulation()
    for number in range(1000):
        simulation.job("team", f"plain-{number}", refuses)
    simulation.run(3 * 3600)
    # One wake-up for many: each of the thousand is still found.
    assert min(len([at for at in knocks if at >= 3600]) for knocks in simulation.knocks.values()) >= 11
    assert len([at for at in simulation.batches if at >= 3600]) < 2 * 3600 / 4


def test_a_program_that_listens_and_serves_something_else_is_asked_rarely_too_without_a_knock_each_time() -> None:
    simulation = Simulation()
    simulation.job("team", "other", lambda _: (0.01, Answer.UNUSABLE))
    simulation.run(2 * 3600)
    assert len([at for at in simulation.asked["other/0"] if at >= 3600]) == pytest.approx(6, abs=1)
    assert simulation.knocks["other"] == []


def test_a_node_that_has_waited_is_asked_often_when_its_program_starts_and_rarely_if_that_serves_nothing() -> None:
    simulation = Simulation()
    simulation.job("team", "waits", until(3000, lambda _: (0.01, Answer.WAITS), refuses))
    simulation.run(3000 + 3 * 3600)
    asked = simulation.asked["waits/0"]
    assert simulation.longest_gap("waits/0", since=0) < 700
    assert len([at for at in asked if 3000 <= at < 3010]) >= 4
    assert len([at for at in asked if at >= 3000 + 2 * 3600]) == pytest.approx(6, abs=1)


def test_an_endpoint_that_refused_and_is_now_silent_keeps_the_others_from_nothing() -> None:
    simulation = Simulation()
    for number in range(500):
        simulation.job("team", f"dark-{number}", until(300, refuses, silent))
    simulation.job("team", "healthy", answers)
    simulation.run(900)
    assert simulation.longest_gap("healthy/0") <= INTERVAL + 0.1
    assert all(knocks[-1] < 500 for knocks in simulation.knocks.values())


def test_ten_thousand_that_refuse_at_once_keep_a_healthy_job_from_nothing_and_are_knocked_at_in_turn() -> None:
    simulation = Simulation()
    for number in range(10_000):
        simulation.job("other", f"plain-{number}", refuses)
    simulation.job("team", "healthy", answers)
    simulation.run(300)
    assert simulation.longest_gap("healthy/0") <= INTERVAL + 0.1
    assert min(len(simulation.asked[f"plain-{number}/0"]) for number in range(10_000)) >= 3
    assert sum(map(len, simulation.knocks.values())) <= 300 * KNOCKS_PER_SECOND + 2 * KNOCKS


def test_a_job_that_ends_while_it_is_knocked_at_is_not_asked_again() -> None:
    simulation = Simulation()
    simulation.job("team", "plain", refuses)
    simulation.run(10)
    refusing: list[Endpoint] = []
    while not refusing:
        simulation.now += 0.5
        refusing = simulation.schedule.take_refusing(simulation.now)
    simulation.schedule.follow(simulation.memories["plain"], (), simulation.now)
    simulation.schedule.knocked(refusing, simulation.now, [Answer.OPEN])
    assert simulation.schedule.take(simulation.now + 60) is None
    assert simulation.schedule.wait(simulation.now + 60) is None


def test_a_program_that_has_served_is_asked_every_two_seconds_while_its_processes_start_again() -> None:
    simulation = Simulation()
    simulation.job("team", "restarts", until(30, answers, until(600, refuses, answers)))
    simulation.run(700)
    assert simulation.longest_gap("restarts/0") == pytest.approx(INTERVAL)


def test_all_ranks_that_answer_are_asked_at_once_when_a_stall_is_suspected_although_others_do_not() -> None:
    simulation = Simulation()
    simulation.job("team", "large", answers)
    simulation.run(10)
    # One memory and one way to answer for all ranks: those that are silent belong to another job here.
    simulation.job("team", "silent", silent, ranks=100)
    simulation.job("team", "large", answers, ranks=512)
    simulation.run(12.5)
    first = [simulation.asked[f"large/{rank}"] for rank in range(1, 512)]
    assert all(asked and asked[0] <= 10 + 512 / POLLS_PER_SECOND + 0.5 for asked in first)
    simulation.run(40)
    assert max(simulation.longest_gap(f"large/{rank}", since=15) for rank in range(512)) <= INTERVAL + 0.1


def test_no_more_is_asked_than_the_event_loop_can_bear() -> None:
    simulation = Simulation()
    two_thousand_healthy_of_another_namespace(simulation)
    simulation.run(20)
    assert sum(map(len, simulation.asked.values())) <= 20 * POLLS_PER_SECOND + 60
    assert min(map(len, simulation.asked.values())) >= 3


def test_a_job_that_is_gone_is_not_asked_and_leaves_nothing() -> None:
    simulation = Simulation()
    simulation.job("team", "large", silent, ranks=512)
    simulation.run(1)
    simulation.schedule.follow(simulation.memories["large"], (), simulation.now)
    assert len(simulation.schedule) == 0
    simulation.asked.clear()
    simulation.job("team", "next", answers)
    simulation.run(60)
    assert set(simulation.asked) == {"next/0"}
    assert simulation.schedule._running == 0


def test_what_is_left_of_a_forgotten_job_does_not_end_the_polls_of_the_one_that_has_its_uid_now() -> None:
    simulation = Simulation()
    simulation.job("team", "digits", answers)
    forgotten = simulation.memories.pop("digits")
    simulation.job("team", "digits", answers)
    simulation.schedule.follow(forgotten, (), simulation.now)
    simulation.run(10)
    assert len(simulation.asked["digits/0"]) >= 4


def test_one_more_poll_before_a_write_leaves_the_regular_ones_where_they_are() -> None:
    simulation = Simulation(PollSchedule(INTERVAL, spread=lambda: 0.0))
    simulation.job("team", "digits", answers)
    simulation.run(10.1)
    last = simulation.asked["digits/0"][-1]
    simulation.schedule.freshen(simulation.memories["digits"], last + 0.7)
    simulation.schedule.freshen(simulation.memories["digits"], last + 0.9)
    simulation.run(last + 4.5)
    later = [round(at - last, 3) for at in simulation.asked["digits/0"] if at > last]
    assert later == [0.7, 2.0, 4.0]


def test_what_one_more_poll_finds_to_serve_is_asked_every_two_seconds_from_then_on() -> None:
    simulation = Simulation()
    simulation.job("team", "late", until(7200, refuses, answers))
    simulation.run(7300)
    assert max(simulation.asked["late/0"]) < 7200
    simulation.schedule.freshen(simulation.memories["late"], 7310)
    simulation.run(7330)
    assert len([at for at in simulation.asked["late/0"] if at >= 7310]) >= 10
