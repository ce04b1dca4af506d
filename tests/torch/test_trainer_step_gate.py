"""Asynchronous saves copy beside the training only what stays as it is until the optimizer's next step."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402

from ddpjob_trainer.checkpoint import Checkpoints, SaveError  # noqa: E402
from ddpjob_trainer.environment import parse_environment  # noqa: E402
from ddpjob_trainer.exchange import Exchange  # noqa: E402
from ddpjob_trainer.group import Group, process_group  # noqa: E402
from ddpjob_trainer.host_copies import HostCopies  # noqa: E402
from ddpjob_trainer.sampler import Position  # noqa: E402
from ddpjob_trainer.snapshot import TrainingState  # noqa: E402
from ddpjob_trainer.step_gate import Pause, calls_hooks  # noqa: E402
from ddpjob_trainer.storage import CheckpointFolder  # noqa: E402

PATIENCE = 60.0
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def group() -> Iterator[Group]:
    with process_group(parse_environment({})) as group:
        yield group


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Lets what is copied beside the training be copied when it is set."""
    let = threading.Event()
    copy_later = HostCopies.copy_later

    def held(self: HostCopies, name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        buffer, make = copy_later(self, name, tensor)

        def make_when_let() -> None:
            assert let.wait(PATIENCE)
            make()

        return buffer, make_when_let

    monkeypatch.setattr(HostCopies, "copy_later", held)
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
    return nn.Sequential(nn.Linear(4, 2), *([nn.BatchNorm1d(2)] if normalized else []))


def compute(model: nn.Module) -> None:
    model(torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 0.0]])).square().sum().backward()


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> TrainingState:
    compute(model)
    optimizer.step()
    return TrainingState(model, optimizer)


def checkpoints_in(folder: Path, group: Group, clock: Callable[[], float] | None = None) -> Checkpoints:
    more = {} if clock is None else {"clock": clock}
    return Checkpoints(CheckpointFolder(folder), Exchange(group.device), asynchronous=True, **more)


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
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters())
    state, expected = trained(model, optimizer), values(model)
    moments = {key: value.clone() for key, value in optimizer.state[model[0].weight].items()}
    checkpoints = checkpoints_in(tmp_path, group, Clock())
    pause = checkpoints.save(state, Position(0, 2, 1))
    assert pause == Pause(1.0)
    # The gradients of the next step need not wait.
    compute(model)
    step = threading.Thread(target=optimizer.step)
    step.start()
    step.join(0.2)
    assert step.is_alive()
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
    pause = checkpoints.save(trained(model, optimizer), Position(0, 2, 1))
    checkpoints.finish()
    for _ in range(3):
        optimizer.step()
    assert pause == Pause(1.0)
    # As many hooks after any number of saves.
    for step in (2, 3):
        checkpoints.save(TrainingState(model, optimizer), Position(0, step * 2, step))
    checkpoints.finish()
    assert len(optimizer._optimizer_step_pre_hooks) == 1


def test_what_changes_without_a_step_is_copied_before_the_save_returns(
    tmp_path: Path, group: Group, copying: threading.Event
) -> None:
    model = model_of(normalized=True)
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    state, expected = trained(model, optimizer), values(model)
    checkpoints = checkpoints_in(tmp_path, group)
    checkpoints.save(state, Position(0, 2, 1))
    compute(model)
    rate.fill_(0.5)
    assert not torch.equal(model[1].running_mean, expected["1.running_mean"])
    copying.set()
    checkpoints.finish()
    assert same(newest(tmp_path), expected)
    assert newest(tmp_path, "optimizer")["optimizer.param_groups.0.lr"] == pytest.approx(0.1)


def test_parameters_that_are_changed_while_they_are_copied_fail_the_save_by_name(
    tmp_path: Path, group: Group, copying: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of()
    checkpoints = checkpoints_in(tmp_path, group)
    checkpoints.save(trained(model, torch.optim.SGD(model.parameters())), Position(0, 2, 1))
    with torch.no_grad():
        model[0].weight.clamp_(-0.1, 0.1)
    copying.set()
    with pytest.raises(SaveError, match=r"no checkpoint at step 1: 0\.weight was changed between the save and"):
        checkpoints.finish()
    assert "0.weight was changed" in caplog.text
    assert CheckpointFolder(tmp_path).versions() == []


@pytest.mark.parametrize("kept_apart", ["an optimizer that calls no hooks", "a model of another optimizer"])
def test_all_that_no_step_can_wait_for_is_copied_before_the_save_returns(
    tmp_path: Path, group: Group, copying: threading.Event, kept_apart: str
) -> None:
    model = model_of()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters())
    state = trained(model, optimizer)
    if kept_apart == "a model of another optimizer":
        state = TrainingState(model, torch.optim.SGD(model_of().parameters()))
    else:
        state = TrainingState(model, Wrapping(optimizer))
    expected = values(model)
    checkpoints = checkpoints_in(tmp_path, group)
    checkpoints.save(state, Position(0, 2, 1))
    optimizer.step()
    assert not same(values(model), expected)
    copying.set()
    checkpoints.finish()
    assert same(newest(tmp_path), expected)


def test_steps_go_on_where_no_thread_can_be_had_for_the_save(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters())
    state, before = trained(model, optimizer), values(model)

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            checkpoints_in(tmp_path, group).save(state, Position(0, 2, 1))
    optimizer.step()
    assert not same(values(model), before)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adafactor])
def test_steps_of_torchs_optimizers_can_be_held_back(kind: type[torch.optim.Optimizer]) -> None:
    optimizer = kind(model_of().parameters(), lr=0.1)
    # A scheduler puts a wrapper around the step of its optimizer.
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert calls_hooks(optimizer)
    assert not calls_hooks(Wrapping(optimizer))
