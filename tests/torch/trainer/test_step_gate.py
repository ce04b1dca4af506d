"""Asynchronous saves copy in the background only what does not change before the optimizer's next step."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from launching import wait_until  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints, SaveError  # noqa: E402
from ddpjob_trainer.checkpointing.host_copies import LaterCopy  # noqa: E402
from ddpjob_trainer.checkpointing.snapshot import TrainingState  # noqa: E402
from ddpjob_trainer.checkpointing.step_gate import Pause, StepGate, place  # noqa: E402
from ddpjob_trainer.checkpointing.storage import CheckpointFolder  # noqa: E402
from ddpjob_trainer.data.position import Position  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402

PATIENCE = 60.0
WIDTH = 8192
"""Makes a weight large enough to be copied later."""
POSITION = Position(0, 4, 2)
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Copies in the background wait until it is set."""
    let = threading.Event()
    make = LaterCopy.make

    def held(copy: LaterCopy) -> None:
        assert let.wait(PATIENCE)
        make(copy)

    monkeypatch.setattr(LaterCopy, "make", held)
    yield let
    let.set()


class Clock:
    """Goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Wrapping(torch.optim.Optimizer):
    """An optimizer that leaves its steps to another one, as accelerate's does."""

    def __init__(self, wrapped: torch.optim.Optimizer) -> None:
        self.wrapped = wrapped
        self.param_groups = wrapped.param_groups
        self.state = wrapped.state

    def state_dict(self) -> dict[str, Any]:
        return self.wrapped.state_dict()

    def step(self, closure: None = None) -> None:
        self.wrapped.step(closure)


def model_of(*, normalized: bool = False) -> nn.Module:
    return nn.Sequential(nn.Linear(4, WIDTH), *([nn.BatchNorm1d(WIDTH)] if normalized else []))


def compute(model: nn.Module) -> None:
    model(torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 0.0]])).square().sum().backward()


def observed(checkpoints: Checkpoints, model: nn.Module, optimizer: torch.optim.Optimizer) -> TrainingState:
    """The state of a training whose second step has shown what changes between two steps."""
    state = TrainingState(model, optimizer)
    compute(model)
    optimizer.step()
    checkpoints.prepare(state)
    checkpoints.finish()
    compute(model)
    optimizer.step()
    return state


def checkpoints_in(folder: Path, group: Group, clock: Callable[[], float] | None = None) -> Checkpoints:
    more = {} if clock is None else {"clock": clock}
    return Checkpoints(CheckpointFolder(folder), group, asynchronous=True, **more)


def values(model: nn.Module) -> Tensors:
    return {name: value.clone() for name, value in model.state_dict().items()}


def newest(folder: Path, file: str = "model") -> Tensors:
    found = next(CheckpointFolder(folder).newest())
    return load_file(found.folder / f"{file}.safetensors")


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_next_step_waits_for_the_copy_and_the_pause_has_how_long(
    tmp_path: Path, group: Group, copying: threading.Event
) -> None:
    model, clock = model_of(), Clock()
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = checkpoints_in(tmp_path, group, clock)
    state, expected = observed(checkpoints, model, optimizer), values(model)
    moments = {key: value.clone() for key, value in optimizer.state[model[0].weight].items()}
    pause = checkpoints.save(state, POSITION, during_next_step=True)
    assert pause == Pause(1.0)
    # The gradients of the next step need not wait.
    compute(model)
    looks = clock.now
    step = threading.Thread(target=optimizer.step)
    step.start()
    wait_until(lambda: clock.now > looks, lambda: "no step has come to the gate")
    assert same(values(model), expected)
    copying.set()
    step.join(PATIENCE)
    assert not same(values(model), expected)
    assert pause == Pause(2.0)
    checkpoints.finish()
    assert same(newest(tmp_path), expected)
    saved = newest(tmp_path, "optimizer")
    assert all(torch.equal(saved[f"optimizer.state.0.{key}"], value) for key, value in moments.items())


def test_steps_do_not_wait_once_everything_is_copied(tmp_path: Path, group: Group) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    checkpoints = checkpoints_in(tmp_path, group, Clock())
    state = observed(checkpoints, model, optimizer)
    for step in (2, 3, 4):
        pause = checkpoints.save(state, Position(0, step * 2, step), during_next_step=True)
        checkpoints.finish()
        optimizer.step()
        assert pause == Pause(1.0)
    # As many hooks after any number of saves.
    assert len(optimizer._optimizer_step_pre_hooks) == 1


def test_what_changes_without_a_step_is_copied_before_the_save_returns(
    tmp_path: Path, group: Group, copying: threading.Event
) -> None:
    model = model_of(normalized=True)
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    checkpoints = checkpoints_in(tmp_path, group)
    state, expected = observed(checkpoints, model, optimizer), values(model)
    checkpoints.save(state, POSITION, during_next_step=True)
    compute(model)
    rate.fill_(0.5)
    assert not torch.equal(model[1].running_mean, expected["1.running_mean"])
    copying.set()
    checkpoints.finish()
    assert same(newest(tmp_path), expected)
    assert newest(tmp_path, "optimizer")["optimizer.param_groups.0.lr"] == pytest.approx(0.1)


def test_a_parameter_that_the_forward_pass_changes_is_copied_before_the_save_returns(
    tmp_path: Path, group: Group, copying: threading.Event
) -> None:
    model = nn.Sequential(nn.Embedding(4, WIDTH, max_norm=1.0), nn.Linear(WIDTH, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoints = checkpoints_in(tmp_path, group)

    def compute_and_step(sample: int) -> None:
        optimizer.zero_grad()
        model(torch.tensor([sample])).sum().backward()
        optimizer.step()

    compute_and_step(0)
    state = TrainingState(model, optimizer)
    checkpoints.prepare(state)
    checkpoints.finish()
    compute_and_step(1)
    expected = values(model)
    checkpoints.save(state, POSITION, during_next_step=True)
    # Nobody has normed this row so far.
    model(torch.tensor([2]))
    assert not same(values(model), expected)
    copying.set()
    checkpoints.finish()
    assert same(newest(tmp_path), expected)


def test_parameters_that_are_changed_while_they_are_copied_fail_the_save_by_name(
    tmp_path: Path, group: Group, copying: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of()
    checkpoints = checkpoints_in(tmp_path, group)
    state = observed(checkpoints, model, torch.optim.SGD(model.parameters()))
    checkpoints.save(state, POSITION, during_next_step=True)
    with torch.no_grad():
        model[0].weight.clamp_(-0.1, 0.1)
    copying.set()
    with pytest.raises(SaveError, match=r"no checkpoint at step 2: 0\.weight was changed between the save and"):
        checkpoints.finish()
    assert "0.weight was changed" in caplog.text
    assert CheckpointFolder(tmp_path).versions() == []


def swap(model: nn.Module, _optimizer: torch.optim.Optimizer) -> None:
    """As averages of parameters are put in their place for an evaluation, and taken out again: torch sees nothing."""
    for each in model.parameters():
        each.data.zero_()


def make_a_step(_model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("a loop that does not ask for it", swap),
        ("no step has been observed", swap),
        ("an optimizer that calls no hooks", make_a_step),
        ("a model of another optimizer", make_a_step),
    ],
)
def test_all_is_copied_before_the_save_returns(
    tmp_path: Path,
    group: Group,
    copying: threading.Event,
    what: str,
    change: Callable[[nn.Module, torch.optim.Optimizer], None],
) -> None:
    model = model_of()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters())
    saved = optimizer
    if what == "an optimizer that calls no hooks":
        saved = Wrapping(optimizer)
    elif what == "a model of another optimizer":
        other = model_of()
        compute(other)
        saved = torch.optim.SGD(other.parameters())
    checkpoints = checkpoints_in(tmp_path, group)
    compute(model)
    if what == "no step has been observed":
        state = TrainingState(model, saved)
        checkpoints.prepare(state)
        checkpoints.finish()
    else:
        state = observed(checkpoints, model, saved)
    expected = values(model)
    checkpoints.save(state, POSITION, during_next_step=what != "a loop that does not ask for it")
    change(model, optimizer)
    assert not same(values(model), expected)
    copying.set()
    checkpoints.finish()
    assert same(newest(tmp_path), expected)


def test_steps_go_on_where_no_thread_can_be_had_for_the_save(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters())
    checkpoints = checkpoints_in(tmp_path, group)
    state, before = observed(checkpoints, model, optimizer), values(model)

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            checkpoints.save(state, POSITION, during_next_step=True)
    optimizer.step()
    assert not same(values(model), before)
    checkpoints.close()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adafactor])
def test_steps_of_torchs_optimizers_can_be_held_back(kind: type[torch.optim.Optimizer]) -> None:
    model, clock = model_of(), Clock()
    optimizer = kind(model.parameters(), lr=0.1)
    # A scheduler puts a wrapper around the step of its optimizer.
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    compute(model)
    gate = StepGate(clock)
    gate.watch(optimizer)
    optimizer.step()
    assert place(model[0].weight) in gate.stable(optimizer)
    gate.close(Pause())
    before = values(model)
    step = threading.Thread(target=optimizer.step)
    step.start()
    wait_until(lambda: clock.now > 0, lambda: "no step has come to the gate")
    assert same(values(model), before)
    gate.open()
    step.join(PATIENCE)
    assert not same(values(model), before)
