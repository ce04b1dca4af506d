"""What a training reports to its listeners, and what they do with it, in one process."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints  # noqa: E402
from ddpjob_trainer.checkpointing.storage import CheckpointFolder  # noqa: E402
from ddpjob_trainer.loop.optimization import Optimization  # noqa: E402
from ddpjob_trainer.loop.settings import Settings  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.observability.listener import Listener, LogRecord, Plan, overridden  # noqa: E402
from ddpjob_trainer.observability.log_steps import LogSteps  # noqa: E402
from ddpjob_trainer.observability.telemetry import Telemetry  # noqa: E402
from ddpjob_trainer.process.activity import Activity  # noqa: E402
from ddpjob_trainer.process.environment import parse_environment  # noqa: E402
from ddpjob_trainer.process.exchange import Exchange, Mean  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402


def of_job(group: Group, **variables: str) -> Group:
    return replace(group, environment=parse_environment(variables))


def test_a_port_that_does_not_exist_is_said_once(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    place = dict.fromkeys(("RANK", "LOCAL_RANK"), "1") | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
    beyond = of_job(group, **place, MASTER_ADDR="first", MASTER_PORT="1", DDPJOB_METRICS_PORT="65535")
    assert Telemetry(beyond).port is None
    assert caplog.text.count("cannot serve metrics and progress on port 65536") == 1


def test_a_progress_file_that_cannot_be_written_is_said_once(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry(of_job(group, DDPJOB_PROGRESS_FILE=str(tmp_path / "missing" / "file")))
    telemetry.finished()
    telemetry.finished()
    assert caplog.text.count("progress is no longer written to the file") == 1


def test_speed_and_remaining_time_follow_what_was_measured_between_log_steps(group: Group) -> None:
    now = 50.0
    telemetry = Telemetry(group, clock=lambda: now, wall_clock=lambda: 1.7e9 + now)
    telemetry.started(Plan(total_epochs=2, total_steps=110, step=10, resumed=True))
    assert telemetry.progress().last_checkpoint_step == 10
    telemetry.step_finished(11, 8, 9.0, 0.5)
    telemetry.logged(LogRecord(11, 0.9, 0.1, 1.0, consumed=8))
    # The first step warms up: nothing is known of the speed before a second log step.
    assert telemetry.progress().eta_seconds is None
    now += 2.0
    telemetry.step_finished(15, 8, 0.5, 0.0)
    telemetry.logged(LogRecord(15, 0.8, 0.1, 1.0, consumed=40))
    progress = telemetry.progress()
    assert (progress.samples_per_second, progress.eta_seconds) == (16.0, 95 * 0.5)
    assert progress.last_step_time == 1.7e9 + now


class Heard(Listener):
    """Remembers what a training reported, in one row."""

    def __init__(self) -> None:
        self.row: list[str] = []

    def activity_changed(self, activity: Activity) -> None:
        if self.row[-1:] != [activity.value]:
            self.row.append(activity.value)

    def step_finished(self, step: int, *_: float) -> None:
        self.row.append(f"{step} done")

    def logged(self, record: LogRecord) -> None:
        self.row.append(f"{record.step} logged")

    def checkpoint_saved(self, step: int, *_: float) -> None:
        self.row.append(f"{step} saved")


def test_a_training_reports_what_it_does(tmp_path: Path, group: Group) -> None:
    heard = Heard()
    model = nn.Linear(1, 1)
    TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).sum(),
        dataset=TensorDataset(torch.ones(2, 1)),
        settings=Settings(total_epochs=1, batch_size=1, save_every_steps=1),
        evaluate=lambda _: 1.0,
        checkpoints=Checkpoints(CheckpointFolder(tmp_path), group),
        listeners=(heard,),
    ).run()
    first = ["data", "step", "1 done", "1 logged", "checkpoint", "step", "1 saved"]
    second = ["data", "step", "2 done", "data", "step", "2 logged", "evaluation", "step"]
    assert heard.row == [*first, *second, "checkpoint", "step", "2 saved"]


class HeardMore(Heard):
    """Also when the ranks begin to need each other."""

    def loss_computed(self, _seconds: float) -> None:
        self.row.append("loss")


def hear_a_training(group: Group, *, fail_at: int = 0) -> list[str]:
    heard, batches = HeardMore(), []
    model = nn.Linear(1, 1)

    def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        batches.append(batch)
        if len(batches) == fail_at:
            raise ValueError("failed on purpose")
        value = model(batch[0]).sum()
        value.register_hook(lambda _: heard.row.append("backward"))
        return value

    with pytest.raises(ValueError, match="failed on purpose") if fail_at else contextlib.nullcontext():
        TrainingLoop(
            group=group,
            model=model,
            optimizer=torch.optim.SGD(model.parameters()),
            loss=loss,
            dataset=TensorDataset(torch.ones(4, 1)),
            settings=Settings(total_epochs=1, batch_size=1, log_every=2),
            listeners=(heard,),
        ).run()
    return heard.row


def test_a_log_step_except_the_first_is_reported_when_all_ranks_have_met_in_the_next_one(group: Group) -> None:
    computed = ["data", "step", "loss", "backward"]
    first = [*computed, "1 done", "1 logged", *computed, "2 done"]
    assert hear_a_training(group) == [
        *first,
        *computed,
        "2 logged",
        "3 done",
        *computed,
        "4 done",
        "data",
        "step",
        "4 logged",
    ]


def test_what_a_listener_does_not_override_is_not_called_in_each_step() -> None:
    heard, other = HeardMore(), Listener()
    assert overridden([other, heard], Listener.loss_computed) == (heard.loss_computed,)
    assert overridden([other], Listener.step_finished) == ()
    # Whatever else stands in for the method is called.
    other.loss_computed = heard.loss_computed  # type: ignore[method-assign]
    assert overridden([other], Listener.loss_computed) == (heard.loss_computed,)


def test_a_training_that_fails_reports_the_previous_log_step(group: Group) -> None:
    assert hear_a_training(group, fail_at=3)[-4:] == ["2 done", "data", "step", "2 logged"]


class LateWork(dist.Work):
    """A collective that is done when it has been asked for a few times."""

    def __init__(self, asked: int, *, fails: bool = False) -> None:
        super().__init__()
        self.asked = asked
        self.fails = fails

    def is_completed(self) -> bool:
        self.asked -= 1
        return self.asked < 0

    def wait(self, *_: object) -> bool:
        assert self.asked < 0, "waits for a rank that may be gone"
        if self.fails:
            raise RuntimeError("Connection closed by peer")
        return True


class LateExchange(Exchange):
    """Whose means are those of a work."""

    def __init__(self, work: dist.Work) -> None:
        super().__init__(torch.device("cpu"))
        self.work = work

    def begin_mean(self, *values: torch.Tensor | float, row: Sequence[float] = ()) -> Mean:  # noqa: ARG002 no others
        return Mean(self.work, torch.tensor([float(each) for each in values]))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("work", "reported"),
    [(LateWork(0), [4.0]), (LateWork(99), [4.0]), (LateWork(100), []), (LateWork(0, fails=True), [])],
    ids=["done", "late", "never", "a rank is gone"],
)
def test_after_a_failure_a_log_step_is_waited_for_a_second_at_most(work: LateWork, reported: list[float]) -> None:
    losses, pauses = list[float](), list[float]()
    log_steps = LogSteps(LateExchange(work), lambda record: losses.append(record.loss))
    log_steps.begin(torch.tensor(4.0), torch.tensor(1.0), torch.tensor(0.0), step=1, learning_rate=0.1, consumed=1)
    log_steps.finish_if_soon(pauses.append)
    assert losses == reported
    assert sum(pauses) <= 1 + 1e-9


class Norms(Listener):
    """Remembers losses and norms."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def logged(self, record: LogRecord) -> None:
        self.seen.append((record.loss, record.gradient_norm))


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_sparse_gradients_of_an_embedding_train_as_dense_ones_do(group: Group, clip_norm: float | None) -> None:
    def train(*, sparse: bool) -> list[tuple[float, float]]:
        heard = Norms()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(4, 3, sparse=sparse), nn.Flatten(), nn.Linear(6, 1))
        TrainingLoop(
            group=group,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
            loss=lambda model, batch: (model(batch[0]) - 1).square().mean(),
            # Rows are asked for several times in a batch.
            dataset=TensorDataset(torch.arange(24).reshape(12, 2) % 4),
            settings=Settings(
                total_epochs=2, batch_size=4, log_every=1, optimization=Optimization(clip_norm=clip_norm)
            ),
            listeners=(heard,),
        ).run()
        return heard.seen

    dense = torch.tensor(train(sparse=False))
    assert dense[-1, 0] < dense[0, 0]
    assert torch.allclose(torch.tensor(train(sparse=True)), dense)


class Timed(Listener):
    """Remembers how long steps took, and how much of it the rank was by itself."""

    def __init__(self) -> None:
        self.alone: list[float] = []
        self.whole: list[float] = []

    def loss_computed(self, seconds: float) -> None:
        self.alone.append(seconds)

    def step_finished(self, _step: int, _samples: int, seconds: float, _waited: float) -> None:
        self.whole.append(seconds)


def test_a_rank_is_by_itself_until_the_gradients_are_exchanged(group: Group) -> None:
    now = 0.0

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Samples(torch.utils.data.Dataset[torch.Tensor]):  # type: ignore[misc]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, _: int) -> torch.Tensor:
            passes(2)
            return torch.ones(1)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        passes(3)
        found = model(batch).sum()
        found.register_hook(lambda _: passes(50))
        return found

    timed, model = Timed(), nn.Linear(1, 1)
    TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=loss,
        dataset=Samples(),
        settings=Settings(total_epochs=1, batch_size=1),
        listeners=(timed,),
        clock=lambda: now,
    ).run()
    assert (timed.alone, timed.whole) == ([5.0, 5.0], [55.0, 55.0])


def test_telemetry_shows_what_a_custom_loop_does(group: Group) -> None:
    now = 50.0
    telemetry = Telemetry(group, clock=lambda: now)
    progress = telemetry.progress()
    assert (progress.activity, progress.seconds_since_step) == (Activity.STARTING, None)
    now += 3
    telemetry.step_finished(1, 8, 0.1, 0.0)
    now += 2
    telemetry.activity_changed(Activity.EVALUATION)
    now += 1
    progress = telemetry.progress()
    assert (progress.activity, progress.activity_seconds, progress.seconds_since_step) == (Activity.EVALUATION, 1, 3)
    telemetry.finished()
    assert telemetry.progress().activity is Activity.FINISHED
