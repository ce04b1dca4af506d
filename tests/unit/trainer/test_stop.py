"""That all ranks stop at one step, whichever of them is asked, and how little it costs them to agree."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob_trainer.process.activity import Activity, Pulse
from ddpjob_trainer.process.last_resort import LastResort
from ddpjob_trainer.process.stop import EXIT_CODE, Stopped, StopRequests
from ddpjob_trainer.process.stop_board import StopBoard


class Ranks:
    """Threads that add up their numbers, as processes would by an all-reduce."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.all_there = threading.Condition()
        self.given: dict[int, list[float]] = {}

    def begin(self, number: int, value: float) -> Callable[[], float]:
        """A rank's collective of this number."""
        with self.all_there:
            self.given.setdefault(number, []).append(value)
            self.all_there.notify_all()

        def result() -> float:
            with self.all_there:
                assert self.all_there.wait_for(lambda: len(self.given[number]) == self.size, 10)
                return sum(self.given[number])

        return result


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
    rank: int = 0
    world_size: int = 1
    board: Store | None = None
    grace_period_seconds: float = 30
    collectives: int = 0

    def begin_sum(self, value: float) -> Callable[[], float]:
        self.collectives += 1
        return self.ranks.begin(self.collectives, value)

    def sum(self, *values: float) -> list[float]:
        return [self.begin_sum(value)() for value in values]


def alone() -> Rank:
    return Rank(Ranks(1))


@dataclass
class Clock:
    """A clock that is set by the test."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def train(ranks: Ranks, exchange: threading.Barrier, steps: int, asked_at: int | None) -> int | None:
    """Steps after which a rank stopped, or None where it was never told to."""
    requests = StopRequests(Rank(ranks))
    for step in range(1, steps + 1):
        if step == asked_at:
            requests._ask(signal.SIGTERM, None)
        exchange.wait()
        if requests.agreed(step):
            return step
    return None


@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_without_a_store_all_ranks_stop_after_the_step_that_follows(size: int, asked: int, asked_at: int) -> None:
    ranks, exchange = Ranks(size), threading.Barrier(size, timeout=10)
    with ThreadPoolExecutor(size) as pool:
        runs = [
            pool.submit(train, ranks, exchange, 100, asked_at if rank == asked % size else None) for rank in range(size)
        ]
        assert {run.result() for run in runs} == {asked_at + 1}


def test_without_a_store_no_rank_waits_for_one_that_is_still_at_the_end_of_the_step() -> None:
    ranks = Ranks(2)
    requests = StopRequests(Rank(ranks))
    assert not requests.agreed(1)
    # The other one has come to the end of that step by the time its gradients are exchanged in the next.
    ranks.begin(1, 1.0)
    assert requests.agreed(2)


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


@pytest.fixture
def own_handler() -> object:
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    yield signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_taken_while_a_training_runs_and_given_back_afterwards(own_handler: object) -> None:
    with StopRequests(alone()) as requests:
        assert not requests.agreed_now(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert requests.agreed_now(0)
    assert signal.getsignal(signal.SIGTERM) is own_handler
    with pytest.raises(ValueError, match="broken"), StopRequests(alone()):
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGTERM) is own_handler


def test_in_another_thread_the_handler_is_left_alone(own_handler: object) -> None:
    def run() -> object:
        with StopRequests(alone()) as requests:
            assert not requests.agreed_now(0)
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() is own_handler


@pytest.mark.usefixtures("own_handler")
def test_a_forked_process_can_be_ended_as_ever_from_its_first_moment_on() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with StopRequests(alone()) as requests:
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
    board, grace_period_seconds = None, 1
    def sum(self, *values): return list(values)
    def begin_sum(self, value): return lambda: value

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
