"""What changes in the course of a training, the learning rate and the end itself, and that a resume goes on with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402
from training import plain  # noqa: E402

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints, MisfitError  # noqa: E402
from ddpjob_trainer.checkpointing.storage import CheckpointFolder  # noqa: E402
from ddpjob_trainer.loop.early_stopping import EarlyStopping, Mode  # noqa: E402
from ddpjob_trainer.loop.optimization import Optimization  # noqa: E402
from ddpjob_trainer.loop.settings import Interval, Settings  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.observability.listener import Listener, LogRecord  # noqa: E402
from ddpjob_trainer.observability.telemetry import Telemetry  # noqa: E402
from ddpjob_trainer.process.environment import MisuseError  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402

STEPS_AN_EPOCH = 3
Make = Callable[[torch.optim.Optimizer], Any]


class Heard(Listener):
    """Remembers the learning rate of every step, and the evaluations."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.evaluations: list[float] = []
        self.no_improvement_for: list[int | None] = []

    def logged(self, record: LogRecord) -> None:
        self.rates.append(record.learning_rate)

    def evaluated(self, value: float, no_improvement_for: int | None) -> None:
        self.evaluations.append(value)
        self.no_improvement_for.append(no_improvement_for)


def train(
    group: Group,
    *,
    epochs: int,
    scheduler: Make | None = None,
    values: list[float] | None = None,
    folder: Path | None = None,
    telemetry: Telemetry | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    loss_factor: Callable[[], float] = lambda: 1.0,
    **settings: Any,
) -> Heard:
    """Train; the n-th epoch's evaluation gives the n-th value."""
    heard, model = Heard(), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = TrainingLoop(
        group=group,
        model=model,
        optimizer=optimizer,
        scheduler=None if scheduler is None else scheduler(optimizer),
        loss=lambda model, batch: (model(batch[0]).float() ** 2).mean() * loss_factor(),
        dataset=TensorDataset(torch.ones(STEPS_AN_EPOCH, 1)),
        settings=Settings(total_epochs=epochs, batch_size=1, log_every=1, **settings),
        evaluate=evaluate if values is None else lambda _: values[trainer.position.epoch - 1],
        checkpoints=None if folder is None else Checkpoints(CheckpointFolder(folder), group),
        listeners=(heard,) if telemetry is None else (heard, telemetry),
    )
    trainer.run()
    return heard


def halves(optimizer: torch.optim.Optimizer) -> lr_scheduler.StepLR:
    return lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)


def test_a_scheduler_is_advanced_after_every_step_or_after_every_epoch(group: Group) -> None:
    assert train(group, epochs=1, scheduler=halves).rates == [1.0, 0.5, 0.25]
    by_epoch = train(group, epochs=3, scheduler=halves, scheduler_interval=Interval.EPOCH)
    assert by_epoch.rates == [1.0] * 3 + [0.5] * 3 + [0.25] * 3


def test_a_step_that_overflows_in_float16_is_none_of_the_schedule(group: Group) -> None:
    factors = iter([1e-3, 1e30, 1e30, 1e-3, 1e-3, 1e-3])
    how = {"scheduler": halves, "loss_factor": lambda: next(factors)}
    rates = train(group, epochs=2, optimization=Optimization(precision="fp16"), **how).rates
    assert rates == [1, 0.5, 0.5, 0.5, 0.25, 0.125]


def test_an_evaluation_computes_in_the_precision_of_the_training(group: Group) -> None:
    found: list[torch.dtype] = []

    def evaluate(model: nn.Module) -> float:
        found.append(model(torch.ones(1, 1)).dtype)
        return 0.5

    train(group, epochs=1, evaluate=evaluate, optimization=Optimization(precision="bf16"))
    train(group, epochs=1, evaluate=evaluate)
    assert found == [torch.bfloat16, torch.float32]


def test_a_plateau_of_evaluations_lowers_the_learning_rate(group: Group) -> None:
    def plateau(optimizer: torch.optim.Optimizer) -> lr_scheduler.ReduceLROnPlateau:
        return lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=0)

    rates = train(group, epochs=4, scheduler=plateau, values=[0.5, 0.6, 0.6, 0.7]).rates
    assert rates == pytest.approx([1.0] * 9 + [0.1] * 3)
    with pytest.raises(MisuseError, match="ReduceLROnPlateau needs evaluations"):
        train(group, epochs=1, scheduler=plateau)


def test_a_value_whose_smaller_is_better_is_not_an_accuracy_and_all_who_use_it_must_agree(group: Group) -> None:
    assert train(group, epochs=2, scheduler=lr_scheduler.ReduceLROnPlateau, values=[0.5, 0.6]).evaluations == []
    with pytest.raises(MisuseError, match="early_stopping has mode max and ReduceLROnPlateau has mode min: both use"):
        train(
            group,
            epochs=1,
            scheduler=lr_scheduler.ReduceLROnPlateau,
            values=[1.0],
            early_stopping=EarlyStopping(patience=1),
        )


SCHEDULERS: dict[str, Make] = {
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 12),
    "restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 2.0, total_steps=20),
    "linear": lambda optimizer: lr_scheduler.LinearLR(optimizer, total_iters=7),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1)),
    "warm up": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=4), lr_scheduler.CosineAnnealingLR(optimizer, 9)],
        milestones=[4],
    ),
    "milestones": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 7, 11]),
    # Restarted at the end of the warm-up, by the closed form.
    "warm up, milestones": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=10), lr_scheduler.MultiStepLR(optimizer, [2, 4])],
        milestones=[10],
    ),
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=1),
}


@pytest.mark.parametrize("interval", list(Interval))
@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_after_a_resume_a_scheduler_goes_on_where_it_was(
    group: Group, tmp_path: Path, name: str, interval: Interval
) -> None:
    how: dict[str, Any] = {"scheduler": SCHEDULERS[name], "scheduler_interval": interval, "values": [0.5] * 6}
    whole = train(group, epochs=6, **how).rates
    first = train(group, epochs=3, folder=tmp_path, **how).rates
    second = train(group, epochs=6, folder=tmp_path, **how).rates
    assert len(set(whole)) > 1
    assert first + second == whole


def falling(epochs: int) -> Make:
    """A learning rate that is computed from how long the training is meant to be now."""
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / epochs)


def test_a_training_that_is_made_longer_has_at_once_the_learning_rates_of_the_longer_one(
    group: Group, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"scheduler_interval": Interval.EPOCH}
    train(group, epochs=2, folder=tmp_path, scheduler=falling(2), **how)
    longer = train(group, epochs=4, folder=tmp_path, scheduler=falling(4), **how).rates
    assert longer == [0.5] * STEPS_AN_EPOCH + [0.25] * STEPS_AN_EPOCH


def test_parameters_that_were_added_after_the_scheduler_was_made_keep_their_learning_rate(
    group: Group, tmp_path: Path
) -> None:
    def with_more(optimizer: torch.optim.Optimizer) -> lr_scheduler.LambdaLR:
        scheduler = falling(4)(optimizer)
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1), requires_grad=False)], "lr": 0.25})
        return scheduler

    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    tried = with_more(optimizer)
    optimizer.step()
    try:
        tried.step()
    except ValueError:
        pytest.skip("this torch refuses it by itself")
    how: dict[str, Any] = {"scheduler_interval": Interval.EPOCH, "scheduler": with_more}
    whole = train(group, epochs=4, **how).rates
    train(group, epochs=2, folder=tmp_path, **how)
    assert train(group, epochs=4, folder=tmp_path, **how).rates == whole[2 * STEPS_AN_EPOCH :]


def test_a_checkpoint_of_another_scheduler_names_it(group: Group, tmp_path: Path) -> None:
    train(group, epochs=1, folder=tmp_path, scheduler=halves)
    with pytest.raises(MisfitError, match=r"does not match this scheduler: .*lr_lambdas"):
        train(group, epochs=2, folder=tmp_path, scheduler=falling(2))


def test_the_checkpoint_of_the_best_evaluation_is_kept_without_improvement(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ddpjob_trainer")
    how = {"values": [0.5, 0.7, 0.6, 0.6, 0.6, 0.6], "early_stopping": EarlyStopping(patience=4)}
    train(group, epochs=9, folder=tmp_path, **how)
    left = [version.step for version in CheckpointFolder(tmp_path).versions()]
    assert left == [6 * STEPS_AN_EPOCH, 5 * STEPS_AN_EPOCH, 4 * STEPS_AN_EPOCH, 2 * STEPS_AN_EPOCH]
    assert "early stop after epoch 6: no improvement in 4 evaluations; the best was after step 6" in caplog.text


def test_an_evaluation_that_gives_rank_0_no_number_is_named(group: Group) -> None:
    with pytest.raises(TypeError, match="evaluate must return a number on rank 0, not NoneType"):
        train(group, epochs=1, values=[None])  # type: ignore[list-item]


def test_a_training_ends_without_improvement_and_is_then_complete(group: Group, tmp_path: Path) -> None:
    how = {"values": [0.5, 0.7, 0.6, 0.7, 0.9], "early_stopping": EarlyStopping(patience=2)}
    telemetry = Telemetry(group)
    ended = train(group, epochs=5, folder=tmp_path, telemetry=telemetry, **how)
    assert ended.evaluations == [0.5, 0.7, 0.6, 0.7]
    assert ended.no_improvement_for == [0, 0, 1, 2]
    progress = telemetry.progress()
    assert (progress.epoch, progress.total_epochs, progress.finished) == (4, 4, True)
    assert (progress.step, progress.total_steps) == (12, 12)
    # It stays at its end, unless it is given more patience.
    telemetry = Telemetry(group)
    assert train(group, epochs=5, folder=tmp_path, telemetry=telemetry, **how).rates == []
    assert (telemetry.progress().total_steps, telemetry.progress().finished) == (12, True)
    more = {**how, "early_stopping": EarlyStopping(patience=3)}
    assert train(group, epochs=5, folder=tmp_path, **more).evaluations == [0.9]


def test_after_a_resume_the_evaluations_before_it_count(group: Group, tmp_path: Path) -> None:
    how = {"values": [0.5, 0.4, 0.4, 0.4, 0.4], "early_stopping": EarlyStopping(patience=3)}
    assert train(group, epochs=2, folder=tmp_path, **how).evaluations == [0.5, 0.4]
    assert train(group, epochs=5, folder=tmp_path, **how).evaluations == [0.4, 0.4]


def test_an_evaluation_of_a_loss_ends_a_training_and_is_not_shown_as_an_accuracy(group: Group) -> None:
    how = EarlyStopping(patience=1, mode=Mode.MIN)
    heard = train(group, epochs=4, values=[2.0, 1.0, 1.5, 0.5], early_stopping=how)
    assert (len(heard.rates), heard.evaluations) == (9, [])
    with pytest.raises(MisuseError, match="early_stopping needs evaluations"):
        train(group, epochs=1, early_stopping=how)


OF_RANK_0 = """
import torch
from ddpjob_trainer import *
from ddpjob_trainer.loop.training_loop import TrainingLoop
configure_logging(current_environment())
with process_group() as group:
    model = torch.nn.Linear(1, 1)
    trainer = TrainingLoop(
        group=group, model=model, optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).mean(), dataset=torch.utils.data.TensorDataset(torch.ones(4, 1)),
        evaluate=lambda _: None if group.rank else -trainer.position.epoch,
        settings=Settings(total_epochs=9, batch_size=1, early_stopping=EarlyStopping(patience=2)),
    )
    trainer.run()
    print("ENDED", trainer.position.epoch)
"""


def test_where_rank_0_alone_measures_all_end_together() -> None:
    ranks = plain(2, "-c", OF_RANK_0)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    assert all("ENDED 3\n" in rank.output for rank in ranks)
    assert "early stop after epoch 3" in ranks[0].output
