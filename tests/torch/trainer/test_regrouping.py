"""Process groups that follow each other in processes that stay, and leave nothing behind."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from training import whole

from ddpjob_trainer.checkpointing.snapshot import TrainingState
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.loop.survival import Survival
from ddpjob_trainer.process.meeting import ABANDONED, GENERATION, NEWS, Meeting, NotMetError
from ddpjob_trainer.process.regrouping import Regrouping

if TYPE_CHECKING:
    from ddpjob_trainer.process.group import Group

PROGRAM = str(Path(__file__).with_name("programs") / "regroups.py")


@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_no_descriptor_and_no_thread_is_left_by_a_group_that_was_left(times: int) -> None:
    ranks = 3
    output = whole(ranks, PROGRAM, str(times)).output
    found = re.findall(r"RANK (\d) (\d+) (\d+) (\d+) (\d+)", output)
    settled = {rank: counts for rank, regroups, *counts in found if regroups != str(times)}
    last = {rank: counts for rank, regroups, *counts in found if regroups == str(times)}
    assert len(settled) == len(last) == ranks, output
    for rank, (files, threads, _) in settled.items():
        assert last[rank][:2] == [files, threads], output
        assert int(last[rank][2]) == ranks * 1000 * (times + 1)


class Time:
    """A clock that moves only while someone waits, with what happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now, self.meanwhile = 0.0, meanwhile

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@contextmanager
def reset_while_forming(
    time: Time, board: dist.Store, *, hurried: bool = False, meanwhile: Callable[[], object] = lambda: None
) -> Iterator[Regrouping]:
    """The group of the first replacement, which forms until a peer closes its connections."""

    def form(prefix: str, timeout: timedelta | None) -> None:
        if prefix.endswith("/1"):
            meanwhile()
            raise RuntimeError("connectFullMesh: Connection reset by peer")
        store = dist.PrefixStore(prefix, dist.HashStore())
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timeout)

    board.add(GENERATION, 1)
    meeting = Meeting(board, rank=0, world_size=1, hurried=lambda: hurried, clock=time, pause=time.pause)
    regrouping = Regrouping(meeting, form, None)
    yield regrouping
    regrouping.leave()


def test_the_launcher_is_given_time_to_say_that_a_rank_was_killed_while_the_group_formed() -> None:
    board = dist.HashStore()

    def count() -> None:
        # Launchers look ten times a second.
        if time.now >= 0.1:
            board.set(GENERATION, "2")

    time = Time(count)
    with reset_while_forming(time, board) as regrouping:
        regrouping.join()
        assert regrouping.generation == 2


def test_a_group_that_cannot_form_though_no_rank_was_killed_is_an_error() -> None:
    time = Time()
    with reset_while_forming(time, dist.HashStore()) as regrouping, pytest.raises(RuntimeError, match="reset by peer"):
        regrouping.join()
    assert 1 < time.now < 10


def test_no_news_is_waited_for_once_the_training_ends() -> None:
    time = Time()
    with reset_while_forming(time, dist.HashStore(), hurried=True) as stopped, pytest.raises(RuntimeError):
        stopped.join()
    board = dist.HashStore()
    given_up = reset_while_forming(time, board, meanwhile=lambda: board.add(ABANDONED, 1))
    with given_up as regrouping, pytest.raises(RuntimeError):
        regrouping.join()
    assert time.now == 0


@pytest.mark.parametrize(
    ("reason", "given_up", "seconds"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"), False, 3600),
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"), True, 0),
        (NotMetError("rank 1 has not come within 300 s"), True, 0),
        (RuntimeError("the connection to the feature store was refused"), False, NEWS),
        (RuntimeError("expected a tensor of floats"), False, 0),
    ],
    ids=["of the group", "a rank has given up", "the ranks have not met", "of the program", "another error"],
)
def test_only_a_connection_of_the_group_is_waited_for_as_long_as_a_lost_node_may_take(
    reason: RuntimeError,
    given_up: bool,  # noqa: FBT001 a column
    seconds: float,
) -> None:
    time, board = Time(), dist.HashStore()
    if given_up:
        board.add(ABANDONED, 1)
    meeting = Meeting(board, rank=0, world_size=2, clock=time, pause=time.pause)
    regrouping = Regrouping(meeting, lambda _, __: None, None, rejoin=3600)
    alone = cast("Group", SimpleNamespace(exchange=None, rank=0))
    survival = Survival(alone, regrouping, name=None, clock=time)
    assert not survival.survives(reason)
    assert time.now == pytest.approx(seconds, abs=0.1)


@pytest.mark.parametrize(("torn", "ruined"), [(True, True), (False, False)])
def test_a_training_without_the_state_of_any_whole_step_is_not_taken_for_one_that_begins(
    group: "Group",
    torn: bool,  # noqa: FBT001 a column
    ruined: bool,  # noqa: FBT001 likewise
) -> None:
    board, time = dist.HashStore(), Time()
    regrouping = Regrouping(
        Meeting(board, rank=0, world_size=1, clock=time, pause=time.pause), lambda _, __: None, None
    )
    survival = Survival(group, regrouping, name=None)
    model = torch.nn.Linear(1, 1)
    state = TrainingState(model, torch.optim.SGD(model.parameters(), lr=1))
    survival.begin()
    assert survival.take_over(state) is None
    assert not survival.is_ruined
    survival.keep(state, Position(0, 3, 3), saved=Position(), torn=torn, epoch_ended=False)
    board.set(GENERATION, "1")
    regrouping.generation = 1
    survival.begin()
    assert survival.is_ruined is ruined
    found = survival.take_over(state)
    assert (found is None) is torn
    assert found is None or found.position == Position(0, 3, 3)
