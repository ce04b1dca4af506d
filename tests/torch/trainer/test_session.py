"""A loop of one's own: it trains what `train` does, and continues exactly where it was, with any loader."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from training import Training, checkpoints_in, plain, together

from ddpjob_trainer import (
    Checkpoints,
    Evaluation,
    Group,
    Listener,
    MisuseError,
    Optimization,
    Plan,
    Session,
    StepLost,
)
from ddpjob_trainer.checkpointing import naming
from ddpjob_trainer.loop.finite import NonFiniteError, OnNan
from ddpjob_trainer.observability import listener

PROGRAM = str(Path(__file__).parent / "programs/own_loop.py")
STOPPED = 143
SIZE = 51


def own_loop(processes: int, folder: Path, loader: str, *options: str, code: int = 0) -> Training:
    done = together(processes, PROGRAM, str(folder), loader, *options)
    assert done.code == code, done.output
    return done


def outcome(training: Training) -> set[str]:
    """The parameters that all ranks have, and the state that is kept besides."""
    found = set(re.findall(r"RANK \d+ (?:DIGEST|AVERAGE) (\S+)", training.output))
    assert found, training.output
    return found


def read(*trainings: Training) -> Counter[int]:
    """How often each sample was read in a step that counted."""
    numbers = (re.findall(r"READ \[(.*)\]", training.output) for training in trainings)
    return Counter(int(each) for lists in numbers for found in lists for each in found.split(",") if each.strip())


def test_a_loop_of_ones_own_trains_what_train_does(tmp_path: Path) -> None:
    for accumulate, kind in (("1", "shuffled"), ("3", "sampler")):
        options = (kind, "--accumulate", accumulate)
        by_train = own_loop(2, tmp_path / f"train-{accumulate}", *options, "--by-train")
        own = own_loop(2, tmp_path / f"own-{accumulate}", *options)
        assert outcome(by_train) < outcome(own)
        assert len(outcome(own)) == 2, "one model and one average on all ranks"


def test_a_step_that_was_lost_is_handed_out_again_and_counts_once(tmp_path: Path) -> None:
    whole = own_loop(2, tmp_path / "whole", "shuffled", "--accumulate", "2")
    lost = own_loop(2, tmp_path / "lost", "shuffled", "--accumulate", "2", "--lose", "3")
    assert outcome(lost) == outcome(whole)
    assert sorted(re.findall("RANK.*STEP.*", lost.output)) == sorted(re.findall("RANK.*STEP.*", whole.output))


def test_an_evaluation_by_rank_0_alone_changes_nothing_of_the_training(tmp_path: Path) -> None:
    whole = own_loop(2, tmp_path / "whole", "shuffled", "--epochs", "1")
    evaluated = own_loop(2, tmp_path / "evaluated", "shuffled", "--epochs", "1", "--evaluate")
    assert outcome(evaluated) == outcome(whole)


@pytest.mark.full
def test_an_evaluation_by_rank_0_alone_may_take_longer_than_a_collective(tmp_path: Path) -> None:
    ranks = plain(
        2, PROGRAM, str(tmp_path), "shuffled", "--epochs", "1", "--max-steps", "2", "--evaluate", "--slow", "3"
    )
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output


SHORT = ["workers", "sampler", "batches", "stream"]
LONG = ["shuffled", "in-order", "weighted", "stream-workers", "stateful", "stateful-workers"]


@pytest.mark.parametrize("kind", [*SHORT, *(pytest.param(kind, marks=pytest.mark.full) for kind in LONG)])
def test_any_loader_goes_on_where_it_was(kind: str, tmp_path: Path) -> None:
    whole = own_loop(2, tmp_path / "whole", kind)
    own_loop(2, tmp_path / "parts", kind, "--stop-at", "1", code=STOPPED)
    rest = own_loop(2, tmp_path / "parts", kind)
    assert "resumed in epoch 1 after step" in rest.output
    assert outcome(rest) == outcome(whole)


@pytest.mark.parametrize(
    "kind",
    [
        "batches",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in ("in-order", "sampler", "stream", "stateful")),
    ],
)
def test_with_another_number_of_ranks_no_sample_is_lost_or_read_twice(kind: str, tmp_path: Path) -> None:
    alone = own_loop(1, tmp_path / "alone", kind, "--epochs", "1")
    first = own_loop(2, tmp_path / "parts", kind, "--stop-at", "1", "--epochs", "1", code=STOPPED)
    rest = own_loop(1, tmp_path / "parts", kind, "--epochs", "1")
    assert read(first, rest) == read(alone)


def test_ranks_with_streams_of_their_own_read_all_of_them(tmp_path: Path) -> None:
    done = own_loop(2, tmp_path, "stream", "--unshared", "--epochs", "1")
    assert read(done) == Counter(range(SIZE))
    assert "something else on each rank" in done.output
    own_loop(2, tmp_path / "parts", "stream", "--unshared", "--stop-at", "1", code=STOPPED)
    other = own_loop(1, tmp_path / "parts", "stream", code=1)
    assert "each of 2 ranks has read a stream of its own, which 1 rank(s) cannot continue: start 2" in other.output


@pytest.mark.full
def test_ranks_with_stateful_loaders_of_their_own_go_on_where_each_was(tmp_path: Path) -> None:
    kind = ("stateful-stream", "--unshared")
    whole = own_loop(2, tmp_path / "whole", *kind)
    first = own_loop(2, tmp_path / "parts", *kind, "--stop-at", "2", code=STOPPED)
    rest = own_loop(2, tmp_path / "parts", *kind)
    assert "something else on each rank" in whole.output
    assert outcome(rest) == outcome(whole)
    assert read(first, rest) == read(whole)


@pytest.fixture(autouse=True)
def each_session_is_of_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(set[str]):
        def add(self, element: str) -> None:
            pass

    monkeypatch.setattr(naming, "_begun", Forgetful())


DATA = TensorDataset(torch.arange(12.0).reshape(12, 1))


class Heard(Listener):
    """What a session reports."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.steps: list[int] = []
        self.saved: list[int] = []
        self.ends: list[str] = []
        self.not_numbers: list[tuple[int, str]] = []

    def started(self, plan: Plan) -> None:
        self.plan = plan

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002 as a Listener
        self.steps.append(step)

    def checkpoint_saved(self, step: int, pause_seconds: float) -> None:  # noqa: ARG002 as a Listener
        self.saved.append(step)

    def shortened(self, total_epochs: int, total_steps: int) -> None:
        self.ends.append(f"shortened to {total_epochs}, {total_steps}")

    def not_finite(self, step: int, what: str) -> None:
        self.not_numbers.append((step, what))

    def finished(self) -> None:
        self.ends.append("finished")

    def failed(self) -> None:
        self.ends.append("failed")


class Found(Listener):
    """What evaluations have found."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def measured(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


def registered(session: Session) -> nn.Module:
    model = session.model(nn.Linear(1, 1))
    session.keep("optimizer", torch.optim.SGD(model.parameters(), lr=0.001))
    return model


def test_two_networks_with_an_optimizer_each_take_turns_in_a_step(group: Group, tmp_path: Path) -> None:
    def run(epochs: int, folder: Path) -> list[float]:
        with Session(group=group, checkpoint_dir=str(folder)) as session:
            one, two = session.model(nn.Linear(1, 1), "one"), session.model(nn.Linear(1, 1), "two")
            first = session.keep("first", torch.optim.Adam(one.parameters(), lr=0.1))
            second = session.keep("second", torch.optim.Adam(two.parameters(), lr=0.1))
            for step in session.steps(DataLoader(DATA, 3, shuffle=True), epochs=epochs):
                with step as (numbers,):
                    session.backward((two(one(numbers).detach()) - numbers).square().mean())
                    session.step(second)
                    session.backward((one(numbers) + two(numbers).detach()).square().mean())
                    session.step(first)
            return [float(each) for each in (*one.parameters(), *two.parameters())]

    run(1, tmp_path / "parts")
    assert run(2, tmp_path / "parts") == run(2, tmp_path / "whole")


def test_listeners_hear_of_what_is_not_finite_of_each_optimizer_and_at_the_right_step(
    group: Group, tmp_path: Path
) -> None:
    def run(epochs: int, policy: OnNan, spoilt: str) -> list[tuple[int, str]]:
        heard = Heard()
        with Session(group=group, checkpoint_dir=str(tmp_path), on_nan=policy, listeners=[heard]) as session:
            one, two = session.model(nn.Linear(1, 1), "one"), session.model(nn.Linear(1, 1), "two")
            first = session.keep("first", torch.optim.Adam(one.parameters()))
            second = session.keep("second", torch.optim.Adam(two.parameters()))
            for step in session.steps(DataLoader(DATA, 3), epochs=epochs):
                with step as (numbers,):
                    for name, model, optimizer in (("one", one, first), ("two", two, second), ("one", one, first)):
                        wrong = name == spoilt and step.number % 4 == 2
                        session.backward(model(numbers).square().mean() * (float("nan") if wrong else 1))
                        session.step(optimizer)
        return heard.not_numbers

    def said(step: int) -> tuple[int, str]:
        return step, f"loss became nan at step {step} on rank 0"

    assert run(1, OnNan.SKIP, "two") == [said(2)]
    assert run(2, OnNan.SKIP, "two") == [said(6)], "after a resume"
    assert run(3, OnNan.SKIP, "one") == [said(10)] * 2, "for it changes parameters twice per step"
    with pytest.raises(NonFiniteError, match=r"loss became nan at step 14 on rank 0; last finite checkpoint: step 12"):
        run(4, OnNan.STOP, "one")


def test_a_sum_with_its_weight_is_a_mean_over_all_batches_of_a_step(group: Group) -> None:
    def run(kind: str, batch: int, accumulate: int) -> list[float]:
        with Session(group=group, optimization=Optimization(accumulate=accumulate)) as session:
            model = session.model(nn.Linear(1, 2))
            session.keep("optimizer", torch.optim.SGD(model.parameters(), lr=0.001))
            for step in session.steps(DataLoader(DATA, batch), epochs=1):
                with step as given:
                    for (numbers,) in [given] if accumulate == 1 else given:
                        losses = (model(numbers) - numbers).square()
                        counted = losses[numbers.flatten() % 3 > 0]
                        match kind:
                            case "mean":
                                session.backward(counted.mean())
                            case "sum":
                                session.backward((counted.sum(), counted.numel()))
                            case "nothing":
                                session.backward((losses.sum(), torch.tensor(0)))
                    session.step()
            return [float(each) for part in model.parameters() for each in part.flatten()]

    expected = run("mean", 6, 1)
    assert run("sum", 6, 1) == pytest.approx(expected, abs=1e-6)
    assert run("sum", 2, 3) == pytest.approx(expected, abs=1e-6), "batches with other numbers of them"
    assert run("mean", 2, 3) != pytest.approx(expected, abs=1e-6)
    torch.manual_seed(0)
    untrained = [float(each) for part in nn.Linear(1, 2).parameters() for each in part.flatten()]
    assert run("nothing", 6, 1) == untrained


def test_a_second_loop_within_an_epoch_trains_in_training_mode(group: Group) -> None:
    modes = list[bool]()
    with Session(group=group) as session:
        model = session.model(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5)))
        session.keep("optimizer", torch.optim.SGD(model.parameters(), lr=0.1))
        for most in (2, 4):
            for step in session.steps(DataLoader(TensorDataset(torch.ones(8, 1))), epochs=1, max_steps=most):
                with step as (batch,):
                    modes.append(model.training)
                    session.backward(model(batch).sum())
                    session.step()
            model.eval()
    assert modes == [True] * 4


def test_a_loop_may_end_before_its_steps_do(group: Group, tmp_path: Path) -> None:
    for given, after in ((2, 2), (9, 5)):
        heard = Heard()
        with Session(group=group, checkpoint_dir=str(tmp_path / str(given)), listeners=[heard]) as session:
            model = registered(session)
            for step in session.steps(DataLoader(DATA, 3), epochs=2, max_steps=given):
                with step as (numbers,):
                    session.backward(model(numbers).square().mean())
                    session.step()
                if step.number == 5:
                    break
        assert heard.plan == Plan(2, min(given, 8), 0, resumed=False)
        assert heard.steps == list(range(1, after + 1))
        assert heard.saved[-1] == after, "whatever ends the loop, its last step is saved"
        assert heard.ends == [*(["shortened to 2, 5"] if given == 9 else []), "finished"]


def test_what_the_loops_body_does_after_a_step_is_in_the_checkpoint_of_that_step(group: Group, tmp_path: Path) -> None:
    class Count:
        value = 0

        def state_dict(self) -> dict[str, int]:
            return {"value": self.value}

        def load_state_dict(self, state_dict: dict[str, int]) -> None:
            self.value = state_dict["value"]

    for epochs in (1, 2):
        with Session(group=group, checkpoint_dir=str(tmp_path)) as session:
            model, count = registered(session), session.keep("count", Count())
            session.resume()
            assert count.value == session.position.step == 4 * (epochs - 1)
            for step in session.steps(DataLoader(DATA, 3), epochs=epochs):
                with step as (numbers,):
                    session.backward(model(numbers).square().mean())
                    session.step()
                count.value += 1


class Counting(Listener):
    """Counts steps over all attempts, and evaluations."""

    def __init__(self) -> None:
        self.count = 0
        self.found: list[float] = []
        self.training: listener.Training | None = None

    def attached(self, training: listener.Training) -> None:
        self.training = training

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002 as a Listener
        self.count += 1

    def measured(self, evaluation: Evaluation) -> None:
        self.found.append(evaluation.metrics["f1"])

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.count = state_dict["count"]


def test_a_listener_is_given_the_model_and_its_state_is_kept(group: Group, tmp_path: Path) -> None:
    for epochs in (1, 2):
        counting = Counting()
        with Session(group=group, checkpoint_dir=str(tmp_path), listeners=[counting]) as session:
            model: Any = registered(session)
            for step in session.steps(DataLoader(DATA, 3), epochs=epochs):
                with step as (numbers,):
                    session.backward(model(numbers).square().mean())
                    session.step()
            session.evaluated({"f1": 0.5})
            with pytest.raises(ValueError, match="at most 63 letters"):
                session.evaluated({"f 1": 0.5})
        assert counting.training is not None
        assert counting.training.model is model.module
        assert (counting.count, counting.found) == (4 * epochs, [0.5])


def test_a_checkpoint_with_other_names_is_refused_with_them(group: Group, tmp_path: Path) -> None:
    def run(name: str) -> None:
        with Session(group=group, checkpoint_dir=str(tmp_path)) as session:
            model = registered(session)
            session.keep(name, nn.Linear(1, 1))
            for step in session.steps(DataLoader(DATA, 3), epochs=1):
                with step as (numbers,):
                    session.backward(model(numbers).square().mean())
                    session.step()

    run("ema")
    with pytest.raises(ValueError, match="it has no queue; it has ema, which this program does not keep"):
        run("queue")


def test_what_a_loop_leaves_out_is_named(group: Group) -> None:  # noqa: C901 one way after the other
    def use(what: str) -> None:  # noqa: C901 likewise
        with Session(group=group, optimization=Optimization(accumulate=2 if what == "early" else 1)) as session:
            if what == "no model":
                session.resume()
            model = registered(session)
            if what == "unseen":
                criterion = session.keep("criterion", nn.Linear(1, 1))
                session.keep("its optimizer", torch.optim.SGD(criterion.parameters()))
            if what == "outside":
                session.step()
            for step in session.steps(DATA if what == "data" else DataLoader(DATA, 3), epochs=1):
                if what == "no with":
                    continue
                if what == "late":
                    session.keep("ema", nn.Linear(1, 1))
                with step as given:
                    if what == "save":
                        session.save()
                    if what == "early":
                        session.backward(model(next(given)[0]).sum())
                        session.step()
                    if what == "own backward":
                        model(given[0]).sum().backward()
                        session.step()
                    session.backward(model(given[0]).sum())
                    if what == "again":
                        session.step()
                    if what == "lost":
                        session.step()
                        raise StepLost
            next(session.steps(DataLoader(DATA, 3), epochs=1))

    for what, said in {
        "no model": "a session needs a model and an optimizer",
        "unseen": "the optimizer changes 2 parameter",
        "outside": "no step is being computed",
        "no with": "without computing this one",
        "late": "ema comes too late",
        "save": "is for between two steps",
        "early": "comes after the last batch of a step",
        "nothing": r"a step ends with session.step\(\)",
        "data": "a data set has no batches",
        "own backward": r"session.step\(\) comes after session.backward",
        "again": r"steps\(epochs=1\) was called again, and no step is left",
        "lost": r"StepLost came after session.step\(\)",
    }.items():
        with pytest.raises(MisuseError, match=said):
            use(what)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (
            lambda loss: [[loss, 1]],
            "must be a mean, which is one tensor, or a tuple of a sum and its weight, not a list",
        ),
        (lambda loss: [(loss, 1, 1)], "not a tuple of 3"),
        (lambda loss: [(loss, torch.ones(3))], r"the weight of a loss must be one number, not of shape \(3,\)"),
        (lambda loss: [(loss, "tokens")], "the weight of a loss must be a number, not 'tokens'"),
        (lambda loss: [(loss, 1), loss], "the loss was a tuple of a sum and its weight, and is now a mean"),
        (lambda loss: [(loss, 1), (loss, 1)], "a batch has one loss with a weight"),
        (lambda loss: [(loss, math.nan)], "the weight of a batch is negative, infinite or NaN"),
    ],
)
def test_a_loss_that_is_none_is_named(
    group: Group, losses: Callable[[torch.Tensor], list[torch.Tensor]], said: str
) -> None:
    def use() -> None:
        with Session(group=group) as session:
            model = registered(session)
            for step in session.steps(DataLoader(DATA, 3), epochs=1):
                with step as (numbers,):
                    for loss in losses(model(numbers).sum()):
                        session.backward(loss)
                    session.step()

    with pytest.raises(MisuseError, match=said):
        use()


def test_the_state_of_several_optimizers_is_not_divided(group: Group) -> None:
    with Session(group=group, optimization=Optimization(shard_optimizer=True)) as session:
        model = registered(session)
        with pytest.raises(MisuseError, match="shard_optimizer divides the state of one optimizer"):
            session.keep("other", torch.optim.SGD(model.parameters()))


def test_an_evaluation_leaves_the_model_as_it_was(group: Group) -> None:
    with Session(group=group) as session:
        model = registered(session)
        for step in session.steps(DataLoader(DATA, 6), epochs=1):
            with step as (numbers,):
                session.backward(model(numbers).square().mean())
                session.step()
            with session.evaluation():
                assert not model.training
                assert not model(torch.ones(1)).requires_grad
            assert model.training


def test_an_evaluation_has_the_precision_of_the_training(group: Group) -> None:
    with Session(group=group, optimization=Optimization(precision="bf16")) as session:
        model = registered(session)
        with session.evaluation():
            assert model(torch.ones(1)).dtype is torch.bfloat16
        assert model(torch.ones(1)).dtype is torch.float32


def test_a_frozen_model_is_in_evaluation_mode_meanwhile(group: Group) -> None:
    with Session(group=group) as session:
        registered(session)
        teacher = session.model(nn.Linear(1, 1).requires_grad_(requires_grad=False), "teacher")
        with session.evaluation():
            assert not teacher.training
        assert teacher.training


@pytest.mark.parametrize(
    ("how", "on_nan", "factor"),
    [(Optimization(precision="fp16"), OnNan.STOP, 1e36), (Optimization(), OnNan.SKIP, math.nan)],
    ids=["overflow", "skip"],
)
def test_a_step_that_is_left_out_says_so_and_does_not_advance_a_schedule(
    group: Group, how: Optimization, on_nan: OnNan, factor: float
) -> None:
    taken: list[bool] = []
    with Session(group=group, optimization=how, on_nan=on_nan, log_every=100) as session:
        model = session.model(nn.Linear(1, 1))
        optimizer = session.keep("optimizer", torch.optim.SGD(model.parameters(), lr=1.0))
        scheduler = session.keep("scheduler", torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        for step in session.steps(DataLoader(DATA, 3), epochs=1):
            with step as (numbers,):
                before = [each.detach().clone() for each in model.parameters()]
                with session.autocast():
                    loss = (model(numbers) * 1e-3).float().mean()
                session.backward(loss * (factor if step.number == 2 else 1))
                taken.append(session.step())
                if taken[-1]:
                    scheduler.step()
                changed = not all(map(torch.equal, before, model.parameters()))
                assert changed is taken[-1]
        assert taken == [True, False, True, True]
        assert optimizer.param_groups[0]["lr"] == 0.5**3


def test_the_checkpoint_of_the_best_evaluation_is_kept(group: Group, tmp_path: Path) -> None:
    def run(epochs: int, found: dict[int, float], after: float | None = None) -> list[Evaluation]:
        heard = Found()
        with Session(
            group=group,
            checkpoint_dir=str(tmp_path),
            save_every=100,
            keep_best="min",
            metric="error",
            listeners=[heard],
        ) as session:
            model: Any = registered(session)
            session.resume()
            for step in session.steps(DataLoader(DATA, 3), epochs=epochs):
                with step as (numbers,):
                    session.backward(model(numbers).square().mean())
                    session.step()
                if step.number in found:
                    session.evaluated({"error": found[step.number], "other": 0})
                    weights[step.number] = model.module.weight.item()
                session.save()
            if after is not None:
                session.evaluated({"error": after, "other": 0})
                weights[step.number] = model.module.weight.item()
        return heard.evaluations

    def best() -> tuple[int | None, float]:
        model, checkpoints = nn.Linear(1, 1), Checkpoints.of_job(group, str(tmp_path))
        assert checkpoints is not None
        return checkpoints.load_best(model), model.weight.item()

    weights: dict[int, float] = {}
    evaluations = run(2, {2: 0.5, 3: 0.25, 8: 0.75})
    assert [each.best for each in evaluations] == [True, True, False]
    assert best() == (3, weights[3]), "older than the newest three"
    assert [each.best for each in run(4, {12: 0.3})] == [False], "it is known after a resume"
    assert best() == (3, weights[3])
    run(5, {}, after=0.1)
    assert best() == (20, weights[20]), "of the end, whose checkpoint was there already"


def test_the_best_evaluation_has_a_checkpoint_though_none_is_due(group: Group, tmp_path: Path) -> None:
    heard = Heard()
    with Session(
        group=group, checkpoint_dir=str(tmp_path), save_every=9, keep_best="max", listeners=[heard]
    ) as session:
        model = registered(session)
        for step in session.steps(DataLoader(DATA, 3), epochs=2):
            with step as (numbers,):
                session.backward(model(numbers).square().mean())
                session.step()
            if step.number in {2, 5, 6}:
                session.evaluated(0.5 if step.number == 5 else 0.25)
    assert heard.saved == [2, 5, 8]


def test_what_rank_0_found_decides_on_the_best_checkpoint(tmp_path: Path) -> None:
    done = own_loop(2, tmp_path, "shuffled", "--epochs", "1", "--evaluate", "--keep-best")
    assert sorted(re.findall(r"RANK (\d) BEST (\d+)", done.output)) == [("0", "1"), ("0", "3"), ("1", "1"), ("1", "3")]
    assert re.findall(r"step-0*(\d+)", " ".join(checkpoints_in(tmp_path))) == ["1", "3", "7"]


def test_a_best_evaluation_needs_a_step_and_a_number(group: Group) -> None:
    for options, said in (
        ({"metric": "f1"}, r"Session\(metric=...\) names what keep_best looks at"),
        ({"keep_best": "most"}, r"Session\(keep_best=...\) must be one of max, min, not 'most'"),
        ({"keep_best": "max", "metric": "a b"}, r"Session\(metric=...\) must be at most 63 letters"),
    ):
        with pytest.raises(ValueError, match=said):
            Session(**options)
    with Session(group=group, keep_best="max") as session:
        model = registered(session)
        with pytest.raises(MisuseError, match=r"between two steps: .* after session.resume\(\)"):
            session.evaluated(0.5)
        for step in session.steps(DataLoader(DATA, 3), epochs=1):
            with step as (numbers,):
                session.backward(model(numbers).square().mean())
                session.step()
                with pytest.raises(MisuseError, match="call it after the `with` of a step"):
                    session.evaluated(0.5)
        with pytest.raises(MisuseError, match=r"the evaluation gave a, b: Session\(metric=...\) must name the one"):
            session.evaluated({"a": 1, "b": 2})
        with pytest.raises(TypeError, match="not NoneType"):
            session.evaluated(None)


class Processes(Dataset[int]):
    """The process that has read a sample, as each sample."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return os.getpid()


class StreamedProcesses(IterableDataset[int]):
    """The same, without indices."""

    def __iter__(self) -> Iterator[int]:
        return iter([os.getpid()] * 4)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("kind", ["samples", "batches", "stream"])
def test_persistent_workers_are_the_same_processes_in_all_epochs(group: Group, kind: str, *, persistent: bool) -> None:
    options: dict[str, Any] = {"num_workers": 1, "persistent_workers": persistent}
    loader: DataLoader[Any]
    match kind:
        case "samples":
            loader = DataLoader(Processes(), 2, **options)
        case "batches":
            loader = DataLoader(Processes(), batch_sampler=[[0, 1], [2, 3]], **options)
        case _:
            loader = DataLoader(StreamedProcesses(), 2, **options)
    workers: list[set[int]] = [set(), set(), set()]
    with Session(group=group) as session:
        model = registered(session)
        for step in session.steps(loader, epochs=3):
            with step as processes:
                workers[step.epoch].update(processes.tolist())
                session.backward(model(processes[:, None] * 0.0).mean())
                session.step()
    assert all(len(each) == 1 for each in workers)
    assert len(set.union(*workers)) == (1 if persistent else 3)
    assert os.getpid() not in set.union(*workers)
