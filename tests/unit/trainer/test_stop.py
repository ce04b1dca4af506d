"""That all ranks stop at one step, whichever of them is asked, and how little it costs them to agree."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob_trainer.process.activity import Activity, Pulse
from ddpjob_trainer.process.last_resort import LastResort
from ddpjob_trainer.process.stop import EXIT_CODE, Stopped, StopRequests
from ddpjob_trainer.process.stop_board import StopBoard


@dataclass
class Ranks:
    """Threads that add up their numbers, as processes would by an all-reduce."""

    size: int
    first: bool = True
    rank: int = 0
    world_size: int = 1
    board: None = None
    grace_period_seconds: float = 30
    looks: int = 0
    given: list[tuple[float, ...]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meeting = threading.Barrier(self.size, self._add, timeout=10)
        self.lock = threading.Lock()

    def sum(self, *values: float) -> list[float]:
        with self.lock:
            self.given.append(values)
        self.meeting.wait()
        return self.totals

    def _add(self) -> None:
        self.totals = [sum(column) for column in zip(*self.given, strict=True)]
        self.given = []
        self.looks += 1


class Store:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        with self.lock:
            self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self.lock:
            number = int(self.values.get(key, "0")) + amount
            self.values[key] = str(number)
        return number


@dataclass
class Rank:
    """One of them."""

    ranks: Ranks
    first: bool
    rank: int = 0
    world_size: int = 1
    board: Store | None = None
    grace_period_seconds: float = 30

    def sum(self, *values: float) -> list[float]:
        return self.ranks.sum(*values)


@dataclass
class Clock:
    """A clock that is set by the test."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def train(ranks: Ranks, rank: int, steps: int, seconds: Callable[[int], float], asked_at: int | None) -> int | None:
    """Steps after which a rank stopped, or None where it was never told to."""
    clock = Clock(1000.0 * rank)
    requests = StopRequests(Rank(ranks, first=rank == 0), clock)
    for step in range(1, steps + 1):
        clock.now += seconds(step) * (1 + rank / 10)
        if step == asked_at:
            requests._ask(signal.SIGTERM, None)
        if requests.agreed(step):
            return step
    return None


@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 60), st.floats(-4, 0.5).map(lambda power: 10**power))
@settings(max_examples=60, deadline=None)
def test_all_ranks_stop_at_one_step_soon_after_any_of_them_was_asked(
    size: int, asked: int, asked_at: int, seconds: float
) -> None:
    ranks = Ranks(size)
    with ThreadPoolExecutor(size) as pool:
        runs = [
            pool.submit(train, ranks, rank, 30_000, lambda _: seconds, asked_at if rank == asked % size else None)
            for rank in range(size)
        ]
        stopped = {run.result() for run in runs}
    (step,) = stopped
    assert step is not None
    assert asked_at <= step
    assert (step - asked_at) * seconds <= max(1.0, seconds) + 1e-6


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("in_step", [True, False], ids=["exchanging", "each for itself"])
def test_all_ranks_stop_at_one_step_whatever_each_step_takes(size: int, in_step: bool) -> None:  # noqa: FBT001
    store, exchange = Store(), threading.Barrier(size, timeout=20)
    passed = threading.Event()

    def run(rank: int) -> tuple[int, int]:
        asked = threading.Event()
        board = StopBoard(store, "one", rank=rank, world_size=size, asked=asked.is_set)
        board.start()
        seen = -1
        step = 0
        while True:
            step += 1
            if in_step:
                exchange.wait()
            else:
                # Each at a speed of its own.
                passed.wait(0.001 * (1 + rank / 4))
            if step == 40 and rank == size - 1:
                asked.set()
            if seen < 0 and store.check(["one/last"]):
                seen = step
            if board.finished(step):
                board.close()
                return step, seen

    with ThreadPoolExecutor(size) as pool:
        ended = list(pool.map(run, range(size)))
    (step,) = {step for step, _ in ended}
    assert step >= 40
    assert step == int(store.values["one/last"])
    # Where each step needs all ranks, at most one is made after the agreement, and few after the request.
    assert not in_step or all(step - seen <= 1 for _, seen in ended if seen > 0)
    assert not in_step or step <= 42


def test_a_rank_that_is_done_or_gone_keeps_none_waiting() -> None:
    store = Store()
    done = StopBoard(store, "one", rank=1, world_size=2, asked=lambda: False)
    done.start()
    assert not done.finished(9)
    done.close()
    asked = threading.Event()
    board = StopBoard(store, "one", rank=0, world_size=2, asked=asked.is_set)
    board.start()
    assert not board.finished(5)
    asked.set()
    step = 6
    while not board.finished(step):
        step += 1
    assert step == int(store.values["one/last"]) >= 10
    board.close()


def test_a_rank_that_was_killed_is_not_waited_for_once_that_is_known() -> None:
    looks: list[int] = []

    def left() -> bool:
        looks.append(1)
        return len(looks) > 1

    # The other rank never answers.
    board = StopBoard(Store(), "one", rank=0, world_size=2, asked=lambda: True, left=left)
    assert not board.finished(5)
    assert len(looks) == 2


def test_a_store_that_is_gone_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Store):
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError(f"connection reset: {keys}")

    board = StopBoard(Gone(), "one", rank=0, world_size=1, asked=lambda: False)
    board.start()
    board._thread.join()
    assert not board.finished(1)
    board.close()
    assert "requests to stop are no longer seen: RuntimeError: connection reset" in caplog.text


def test_a_second_of_short_steps_costs_one_look() -> None:
    ranks = Ranks(1)
    assert train(ranks, 0, 20_000, lambda _: 0.001, None) is None
    assert ranks.looks <= 20 + 2


def test_steps_that_become_slower_are_noticed_at_the_next_look() -> None:
    ranks = Ranks(1)
    train(ranks, 0, 1000, lambda step: 0.01 if step <= 500 else 2.0, None)
    assert ranks.looks >= 400 - 1


@pytest.fixture
def own_handler() -> object:
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    yield signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_taken_while_a_training_runs_and_given_back_afterwards(own_handler: object) -> None:
    with StopRequests(Ranks(1)) as requests:
        assert not requests.agreed_now(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert requests.agreed_now(0)
    assert signal.getsignal(signal.SIGTERM) is own_handler
    with pytest.raises(ValueError, match="broken"), StopRequests(Ranks(1)):
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGTERM) is own_handler


def test_in_another_thread_the_handler_is_left_alone(own_handler: object) -> None:
    def run() -> object:
        with StopRequests(Ranks(1)) as requests:
            assert not requests.agreed_now(0)
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() is own_handler


@pytest.mark.usefixtures("own_handler")
def test_a_forked_process_can_be_ended_as_ever_from_its_first_moment_on() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with StopRequests(Ranks(1)) as requests:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                # Not for ever, so that a child that is deaf to the signal is one of another exit code.
                signal.alarm(5)
                signal.pause()
            os.kill(child, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not requests.agreed_now(0)
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


HANGS = """
import os, signal, sys, threading
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.stop import StopRequests

class Alone:
    first, board = True, None
    grace_period_seconds = 1
    def sum(self, *values): return list(values)

with StopRequests(Alone()) as requests:
    requests.agreed(1)
    requests.activity_changed(Activity(sys.argv[1]))
    done = threading.Event()
    os.kill(os.getpid(), signal.SIGTERM)
    done.wait(None if sys.argv[1] == "data" else 3)
    assert requests.agreed_now(1)
print("it has looked")
"""


def test_a_rank_that_hangs_ends_soon_after_sigterm_and_shows_where() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS, "data"], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert re.search(r"asked to stop, but no step has finished for \d+ s \(activity data\)", done.stderr)
    assert "in wait" in done.stderr


def test_a_rank_that_evaluates_is_left_to_it() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS, "evaluation"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "it has looked\n"), done.stderr


@pytest.mark.parametrize(("grace", "patience"), [(30, 25), (600, 595), (10, 5), (4, 2), (0, 0)])
def test_a_rank_is_waited_for_until_shortly_before_the_end_of_the_grace_period(grace: float, patience: float) -> None:
    pulse = Pulse(Clock())
    resort = LastResort(pulse, grace)
    assert not resort.overdue(patience - 0.1)
    assert resort.overdue(patience)
    pulse.change(Activity.CHECKPOINT)
    assert not resort.overdue(patience + 500)
    resort.close()


def test_stopped_ends_the_process_with_143_in_silence_and_a_further_sigterm_changes_nothing() -> None:
    program = (
        "import os, signal\n"
        "from ddpjob_trainer.process.stop import Stopped, StopRequests\n"
        "class Alone: board, grace_period_seconds = None, 30\n"
        "try:\n"
        "    with StopRequests(Alone()): raise Stopped(7)\n"
        "finally: os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_CODE, b"")
    assert EXIT_CODE == 143
    assert Stopped(7).step == 7
