"""What a step has changed before its parameters did is put back, or found out."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from ddpjob_trainer.loop.rewinding import Rewinding

LARGE = 20_000
"""Numbers of a state that is not copied without need."""


class Kept:
    """A state of the program."""

    def __init__(self, size: int) -> None:
        self.values, self.count = torch.arange(float(size)), 0

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values.copy_(state_dict["values"])
        self.count = state_dict["count"]


class Trained:
    """A model with an optimizer that has made a step, and a state."""

    def __init__(self, size: int) -> None:
        self.model, self.kept = nn.Linear(3, 1), Kept(size)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.step()
        self.rewinding = Rewinding([self.model], [self.optimizer], {"kept": self.kept})

    def step(self) -> None:
        self.model(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def first_step(self, before: bool, after: bool) -> None:  # noqa: FBT001 as columns below
        self.rewinding.remember()
        if before:
            self.kept.count += 1
        self.rewinding.change()
        self.step()
        self.kept.values.data.add_(1)
        self.rewinding.end()
        if after:
            self.kept.count += 1


@pytest.mark.parametrize(
    ("size", "before", "after", "copied"),
    [(3, False, False, True), (LARGE, False, False, False), (LARGE, True, False, True), (LARGE, False, True, True)],
    ids=["a small state", "a large one", "that changes before the parameters", "that changes after the step"],
)
def test_a_state_is_put_back_if_it_was_copied_and_else_refused(
    size: int,
    before: bool,  # noqa: FBT001 a column
    after: bool,  # noqa: FBT001 likewise
    copied: bool,  # noqa: FBT001 likewise
) -> None:
    trained = Trained(size)
    trained.first_step(before, after)
    trained.rewinding.remember()
    expected, count = trained.kept.values.clone(), trained.kept.count
    # No version counts this one.
    trained.kept.values.data[1] += 1
    trained.kept.count += 5
    assert trained.rewinding.rewind() == ([] if copied else ["kept"])
    if copied:
        assert torch.equal(trained.kept.values, expected)
        assert trained.kept.count == count


def test_a_large_state_that_has_changed_once_is_copied_from_then_on() -> None:
    trained = Trained(LARGE)
    trained.first_step(before=False, after=False)
    for expected in (["kept"], []):
        trained.rewinding.remember()
        trained.kept.values[5] = 0.5 + trained.kept.values[5]
        assert trained.rewinding.rewind() == expected


@pytest.mark.parametrize("by", ["in place", "without a version", "another tensor", "an optimizer", "nothing"])
def test_parameters_that_have_changed_are_found_out(by: str) -> None:
    trained = Trained(3)
    trained.rewinding.remember()
    weight = trained.model.weight
    with torch.no_grad():
        match by:
            case "in place":
                weight.add_(1)
            case "without a version":
                weight.data[0, 1] += 1e-6
            case "another tensor":
                weight.data = weight.data * 2
            case "an optimizer":
                trained.optimizer.state[weight]["exp_avg"].mul_(0)
    assert bool(trained.rewinding.rewind()) is (by != "nothing")


def test_hyperparameters_are_put_back() -> None:
    trained = Trained(3)
    trained.rewinding.remember()
    group = trained.optimizer.param_groups[0]
    group["lr"] *= 0.5
    group["new"] = 1
    assert trained.rewinding.rewind() == []
    assert group["lr"] == 0.1
    assert "new" not in group


def test_a_step_without_changes_can_be_made_again() -> None:
    trained = Trained(LARGE)
    for _ in range(3):
        trained.rewinding.remember()
        assert trained.rewinding.rewind() == []
        trained.rewinding.change()
        trained.step()
        trained.rewinding.end()


def test_a_large_state_whose_numbers_have_only_changed_places_has_changed() -> None:
    trained = Trained(LARGE)
    trained.first_step(before=False, after=False)
    trained.rewinding.remember()
    trained.rewinding.change()
    trained.rewinding.end()
    for order in (
        torch.randperm(LARGE),
        torch.arange(LARGE).roll(2048),
        torch.arange(LARGE).view(-1, 2).flip(1).view(-1),
    ):
        trained.rewinding.remember()
        trained.kept.values.data.copy_(trained.kept.values[order])
        # At the second time it is copied in advance.
        trained.rewinding.rewind()
        assert trained.rewinding._states["kept"]._copied
        trained.rewinding._states["kept"]._copied = False


class Grown(Kept):
    """Becomes something that no checkpoint holds."""

    extra: object = None

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "extra": self.extra}


def test_a_state_that_no_checkpoint_holds_any_more_ends_no_training_and_is_given_to_no_rank() -> None:
    kept = Grown(3)
    rewinding = Rewinding([], [], {"kept": kept})
    rewinding.remember()
    assert rewinding.rewind() == []
    kept.extra = object()
    rewinding.remember()
    assert rewinding.rewind() == ["kept"]
