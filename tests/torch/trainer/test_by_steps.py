"""A training of a number of steps, with evaluations within epochs: they disturb nothing, and a resume is exact."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402
from torch.optim.lr_scheduler import ReduceLROnPlateau  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402
from training import together, whole  # noqa: E402

from ddpjob_trainer import (  # noqa: E402
    Checkpoints,
    EarlyStopping,
    EpochLines,
    Evaluation,
    Group,
    Listener,
    LogRecord,
    MisuseError,
    Plan,
    Result,
    Settings,
    Telemetry,
)
from ddpjob_trainer.checkpointing.restoring import MisfitError  # noqa: E402
from ddpjob_trainer.checkpointing.storage import CheckpointFolder, ResumeError  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.observability.trackers import Tracker  # noqa: E402
from ddpjob_trainer.process.environment import parse_environment  # noqa: E402

PROGRAM = str(Path(__file__).with_name("programs") / "by_steps.py")
FEW = ["saved 3", "measured 8,stop 11", "stop 16"]
MORE = ["step 1", "saved 6", "saved 12,saved 15", "stop 1", "stop 2,stop 4", "measured 16", "measured 17", "stop 17"]


@pytest.mark.parametrize(
    ("ranks", "ends"),
    [
        pytest.param(2, FEW, id="two ranks"),
        *(pytest.param(ranks, FEW + MORE, id=f"any end of {ranks}", marks=pytest.mark.full) for ranks in (1, 2, 3)),
    ],
)
def test_evaluations_within_epochs_disturb_nothing_and_a_resume_goes_on_exactly(ranks: int, ends: list[str]) -> None:
    output = whole(ranks, PROGRAM, *ends).output
    assert "== without evaluations: same True" in output
    found = re.findall(r"^== (.*): differs (.*), result same (.*), from .*$", output, re.MULTILINE)
    assert len(found) == len(ends), output
    assert [each for each in found if each[1:] != ("[]", "True")] == []
    (kept, best) = re.findall(r"^== kept (.*), best (\d+),", output, re.MULTILINE)[0]
    assert kept in (f"[{best}, 17]", "[17]")
    assert "== longer: from 10, to 17, rates same True" in output


@pytest.mark.full
def test_a_killed_training_goes_on_exactly(tmp_path: Path) -> None:
    def found(output: str) -> dict[str, str]:
        return dict(re.findall(r"^FOUND (.*?): (.*)$", output, re.MULTILINE))

    undisturbed = found(whole(2, PROGRAM, "--in", str(tmp_path / "whole")).output)
    assert together(2, PROGRAM, "--in", str(tmp_path / "killed"), "--die-at", "13").code != 0
    resumed = whole(2, PROGRAM, "--in", str(tmp_path / "killed"))
    rest = found(resumed.output)
    assert "after step 12" in resumed.output
    assert "evaluation 17" in rest
    assert rest.items() <= undisturbed.items()
    assert {"loss 13", "0.weight", "average"} <= rest.keys()


class Heard(Listener):
    """Remembers rates, evaluations, and what is planned."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.evaluations: list[Evaluation] = []
        self.plan: Plan | None = None

    def started(self, plan: Plan) -> None:
        self.plan = plan

    def logged(self, record: LogRecord) -> None:
        self.rates.append(record.learning_rate)

    def measured(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


class Count(Listener):
    """Counts steps over all attempts."""

    def __init__(self, name: str = "") -> None:
        self.count = 0
        self.state_name = name

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002
        self.count += 1

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.count = state_dict["count"]


class Written(Tracker):
    """A tracker that remembers what it is to write of evaluations."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.rows: list[tuple[int, str, float]] = []

    def _write(self, values: Mapping[str, float], step: int) -> None:
        self.rows += [(step, name, value) for name, value in values.items() if name.startswith("eval/")]


STEPS_AN_EPOCH = 4
Found = dict[str, float] | float


def training(
    group: Group,
    folder: Path | None = None,
    *,
    values: Sequence[Found] | None = None,
    scheduler: Any = None,
    listeners: Sequence[Listener] = (),
    **settings: Any,
) -> tuple[Result, Heard]:
    """Train a model whose only weight is lowered in each step; the n-th evaluation gives the n-th value."""
    heard, model = Heard(), nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    left = iter(values or ())
    loop = TrainingLoop(
        group=group,
        model=model,
        optimizer=optimizer,
        loss=lambda model, batch: model(batch[0]).mean(),
        dataset=TensorDataset(torch.ones(STEPS_AN_EPOCH, 1)),
        scheduler=scheduler(optimizer) if isinstance(scheduler, Ready) else scheduler,
        evaluate=None if values is None else lambda _: next(left),
        checkpoints=checkpoints(group, folder),
        settings=Settings(batch_size=1, log_every=1, **settings),
        listeners=(heard, *listeners),
    )
    return loop.run(), heard


def checkpoints(group: Group, folder: Path | None) -> Checkpoints | None:
    """Of the group's job, if it has a name."""
    if folder is None or group.environment.job.uid:
        return Checkpoints.of_job(group, None if folder is None else str(folder), keep_last=1)
    return Checkpoints(CheckpointFolder(folder, keep_last=1), group)


class Ready:
    """Stands for a scheduler that a program makes itself."""

    def __init__(self, make: Any, steps: int) -> None:
        self.make, self.steps = make, steps

    def __call__(self, optimizer: Any) -> Any:
        return self.make(optimizer, self.steps)


def test_a_training_of_steps_ends_with_them_and_goes_on_if_it_is_given_more(group: Group, tmp_path: Path) -> None:
    counting = Count()
    result, heard = training(group, tmp_path, max_steps=6, listeners=[counting])
    assert heard.plan == Plan(2, 6, 0, resumed=False)
    assert (result.steps, result.epochs, result.samples, result.resumed_from) == (6, 1, 6, None)
    again = Count()
    result, heard = training(group, tmp_path, max_steps=13, total_epochs=3, listeners=[again])
    assert heard.plan == Plan(3, 12, 6, resumed=True)
    assert (result.steps, result.epochs, result.samples, result.resumed_from) == (12, 3, 6, 6)
    assert (counting.count, again.count) == (6, 12)
    complete, heard = training(group, tmp_path, max_steps=12, listeners=[Count()])
    assert (complete.steps, complete.samples, heard.rates) == (12, 0, [])
    assert (complete.metrics, complete.best_step, complete.ended_early) == ({}, None, None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "Settings.total_epochs or Settings.max_steps must say when the training ends"),
        ({"max_steps": 0}, "Settings.max_steps must be at least 1, not 0"),
        ({"max_steps": 1e5}, "Settings.max_steps must be a whole number, not 100000.0"),
        ({"max_steps": 1, "evaluate_every_steps": 0}, "Settings.evaluate_every_steps must be at least 1, not 0"),
        ({"max_steps": 1, "keep_best": True}, "Settings.keep_best must be one of max, min, not 'True'"),
        ({"max_steps": 1, "metric": "a b"}, "Settings.metric must be at most 63 letters"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(batch_size=1, **settings)


def test_what_needs_evaluations_or_the_name_of_a_number_says_so(group: Group) -> None:
    for name, value in {"keep_best": "max", "metric": "f1", "evaluate_every_steps": 1}.items():
        with pytest.raises(MisuseError, match=f"{name} needs evaluations: pass evaluate=..., or remove {name}"):
            training(group, max_steps=1, **{name: value})
    both = [{"f1": 0.5, "loss": 1.0}]
    with pytest.raises(
        MisuseError, match=r"Settings.metric is 'acc', but the evaluation gave f1, loss: name one of them"
    ):
        training(group, max_steps=1, metric="acc", values=both)
    with pytest.raises(
        MisuseError, match=r"the evaluation gave f1, loss: Settings.metric must name .* keep_best is max"
    ):
        training(group, max_steps=1, keep_best="max", values=both)
    with pytest.raises(MisuseError, match="keep_best is max and ReduceLROnPlateau has mode min: both use"):
        training(
            group, max_steps=1, keep_best="max", values=both, scheduler=Ready(lambda o, _: ReduceLROnPlateau(o), 1)
        )
    for found, kind in (({"f 1": 1.0}, "at most 63 letters"), ({"f1": None}, "a number as f1"), ({}, "from 1 to 32")):
        with pytest.raises(TypeError, match=kind):
            training(group, max_steps=1, values=[found])  # type: ignore[list-item]


def test_several_numbers_are_shown_by_name_and_one_of_them_counts(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ddpjob_trainer")
    values = [{"accuracy": 0.5, "loss": 2.0}, {"accuracy": 0.7, "loss": 1.0}, {"accuracy": 0.9, "loss": 1.5}]
    telemetry, settings = Telemetry(group), {"metric": "loss", "keep_best": "min", "evaluate_every_steps": 3}
    listeners = [telemetry, EpochLines(group, 1), tracker := Written(group)]
    result, heard = training(group, tmp_path, max_steps=9, values=values, listeners=listeners, **settings)
    assert [each.step for each in heard.evaluations] == [3, 6, 9]
    assert [(each.metric, each.best) for each in heard.evaluations] == [("loss", True), ("loss", True), ("loss", False)]
    assert (result.metrics, result.best_metrics, result.best_step) == (values[2], values[1], 6)
    assert json.loads(telemetry.progress().as_json())["metrics"] == values[2]
    assert telemetry.progress().accuracy == 0.9
    text = telemetry.metrics.render()[1].decode()
    assert 'metric="loss",rank="0"} 1.5' in text
    assert "evaluation after step 6: loss 1" in caplog.text
    assert "accuracy 0.7000" in caplog.text
    assert tracker.rows[:2] == [(3, "eval/loss", 2.0), (3, "eval/accuracy", 0.5)]
    assert len(tracker.rows) == 6
    # Steps between two checkpoints are not asked for: the best one was saved all the same.
    assert [version.step for version in CheckpointFolder(tmp_path).versions()] == [9, 6]
    # It is evaluated no more, and remembers.
    complete, heard = training(group, tmp_path, max_steps=9, values=[], **settings)
    assert (complete.metrics, complete.best_metrics, complete.best_step) == (values[2], values[1], 6)
    assert heard.evaluations == []


def test_the_model_of_the_best_evaluation_can_be_loaded(group: Group, tmp_path: Path) -> None:
    model = nn.Linear(1, 1, bias=False)
    saved = Checkpoints(CheckpointFolder(tmp_path), group)
    assert saved.load_best(model) is None
    values: list[Found] = [0.5, 0.9, 0.7, 0.8, 0.8]
    training(group, tmp_path, max_steps=5, values=values, keep_best="max", evaluate_every_steps=1)
    before = load_file(str(tmp_path / "step-000000005.attempt-0" / "model.safetensors"))["weight"]
    assert saved.load_best(model) == 2
    # Each step lowers it by 1.
    assert float(model.weight - before) == pytest.approx(3)
    shutil.rmtree(tmp_path / "step-000000002.attempt-0")
    with pytest.raises(ResumeError, match="the checkpoint of the best evaluation, at step 2, is not in"):
        saved.load_best(model)


def test_a_job_that_continues_another_one_loads_the_best_model_of_that_one(group: Group, tmp_path: Path) -> None:
    def job(name: str, **more: str) -> Group:
        variables = {"DDPJOB_NAME": name, "DDPJOB_NAMESPACE": "team", "DDPJOB_UID": f"uid-of-{name}", **more}
        return replace(group, environment=parse_environment(variables))

    first, second = job("first"), job("second", DDPJOB_RESUME_FROM="first")
    how: dict[str, Any] = {"keep_best": "max", "evaluate_every_steps": 1, "save_every_steps": 1}
    training(first, tmp_path, max_steps=4, values=[0.5, 0.9, 0.7, 0.7], **how)
    result, _ = training(second, tmp_path, max_steps=6, values=[0.8, 0.6], **how)
    assert (result.resumed_from, result.best_step) == (4, 2)
    continued = checkpoints(second, tmp_path)
    assert continued is not None
    assert continued.load_best(nn.Linear(1, 1, bias=False)) == 2


def test_early_stopping_within_an_epoch_is_the_end_until_it_is_given_more_patience(
    group: Group, tmp_path: Path
) -> None:
    values: list[Found] = [0.5, 0.6, 0.6, 0.6, 0.7]
    how = {"values": values, "max_steps": 20, "evaluate_every_steps": 2}
    result, heard = training(group, tmp_path, early_stopping=EarlyStopping(patience=2), **how)
    assert (result.steps, result.epochs, result.ended_early) == (8, 2, "no improvement in 2 evaluations")
    again, heard = training(group, tmp_path, early_stopping=EarlyStopping(patience=2), **how)
    assert (again.steps, again.ended_early, heard.evaluations) == (8, result.ended_early, [])
    assert heard.plan == Plan(2, 8, 8, resumed=True)
    more, heard = training(
        group, tmp_path, early_stopping=EarlyStopping(patience=3), **{**how, "values": [0.6, 0.7, 0.7, 0.7, 0.7]}
    )
    assert [each.step for each in heard.evaluations] == [10]
    assert (more.steps, more.best_step) == (10, 4)


def test_evaluations_by_another_number_do_not_count(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    how = {"values": [{"f1": 0.9, "loss": 3.0}, {"f1": 0.9, "loss": 2.0}], "evaluate_every_steps": 2}
    training(group, tmp_path, max_steps=4, metric="f1", keep_best="max", **how)
    result, _ = training(group, tmp_path, max_steps=8, metric="loss", keep_best="min", **how)
    assert result.best_metrics == {"f1": 0.9, "loss": 2.0}
    assert result.best_step == 8
    assert "earlier evaluations do not count: loss counts instead of f1" in caplog.text


FUNCTIONS: dict[str, Any] = {
    "class": lr_scheduler.CosineAnnealingLR,
    "one cycle": lambda optimizer, steps: lr_scheduler.OneCycleLR(optimizer, 2.0, total_steps=steps),
    "lambda": lambda optimizer, steps: lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps),
    "warm up": lambda optimizer, steps: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=2), lr_scheduler.CosineAnnealingLR(optimizer, steps - 2)],
        milestones=[2],
    ),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_a_scheduler_may_be_a_function_of_the_number_of_steps(group: Group, tmp_path: Path, name: str) -> None:
    make = FUNCTIONS[name]
    _, whole = training(group, max_steps=10, scheduler=make)
    assert whole.rates == training(group, max_steps=10, scheduler=Ready(make, 10))[1].rates
    first = training(group, tmp_path / "same", max_steps=10, scheduler=make, save_every_steps=3)[1].rates
    assert first == whole.rates
    # What a training without the function has saved is taken over.
    training(group, tmp_path / "ready", max_steps=4, scheduler=Ready(make, 10))
    assert training(group, tmp_path / "ready", max_steps=10, scheduler=make)[1].rates == whole.rates[4:]
    # A training that is made longer is at once where the longer one would be.
    training(group, tmp_path / "longer", max_steps=6, scheduler=make)
    longer = training(group, tmp_path / "longer", max_steps=10, scheduler=make)[1]
    assert longer.rates == pytest.approx(whole.rates[6:])
    again = training(group, tmp_path / "longer", max_steps=10, scheduler=make)[0]
    assert again.steps == 10


def test_a_function_that_makes_no_such_scheduler_is_named(group: Group) -> None:
    for make, said in (
        (lambda _optimizer, _steps: 0.1, "scheduler is a function that returned float"),
        (lambda optimizer, _: ReduceLROnPlateau(optimizer), "ReduceLROnPlateau depends on evaluations"),
    ):
        with pytest.raises(MisuseError, match=said):
            training(group, max_steps=1, scheduler=make)
    with pytest.raises(MisuseError, match=r"advanced after every step: remove Settings\.scheduler_interval"):
        training(group, max_steps=1, scheduler=lr_scheduler.CosineAnnealingLR, scheduler_interval="epoch")


def test_listeners_whose_states_do_not_fit_are_named(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(MisuseError, match="two listeners keep their state in checkpoints as 'Count'"):
        training(group, max_steps=1, listeners=[Count(), Count()])
    training(group, tmp_path, max_steps=2, listeners=[Count(), Count("other")])
    with pytest.raises(MisfitError, match="it has the state of other, which is not among the listeners"):
        training(group, tmp_path, max_steps=4, listeners=[Count()])
    third = Count("third")
    training(group, tmp_path, max_steps=4, listeners=[Count(), Count("other"), third])
    assert "the checkpoint has no state of the listener third" in caplog.text
    assert third.count == 2


def test_a_checkpoint_of_an_older_version_goes_on(group: Group, tmp_path: Path) -> None:
    how: dict[str, Any] = {"total_epochs": 2, "early_stopping": EarlyStopping(patience=3)}
    training(group, tmp_path, values=[0.9, 0.8], **how)
    (folder,) = tmp_path.glob("step-000000008*")
    manifest = json.loads((folder / "checkpoint.json").read_text())
    count = {"$items": [["best", 0.9], ["count", 1], ["best_step", 4]]}
    manifest["content"] |= {"others": None, "earlyStop": count}
    (folder / "checkpoint.json").write_text(json.dumps(manifest))
    result, heard = training(group, tmp_path, values=[0.85, 0.85], **{**how, "total_epochs": 4}, listeners=[Count()])
    assert (result.steps, result.best_step, len(heard.evaluations)) == (16, 4, 2)
    assert result.ended_early is None
