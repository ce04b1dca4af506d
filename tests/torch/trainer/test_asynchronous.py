"""Checkpoints written while the training continues: as sound as others, and never reported too early."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402
from training import Training, checkpoints_in, in_interpreters, plain, together, whole  # noqa: E402

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints, SaveError  # noqa: E402
from ddpjob_trainer.checkpointing.snapshot import TrainingState  # noqa: E402
from ddpjob_trainer.checkpointing.storage import CheckpointFolder  # noqa: E402
from ddpjob_trainer.checkpointing.tensor_file import write_tensors  # noqa: E402
from ddpjob_trainer.data.position import Position  # noqa: E402
from ddpjob_trainer.loop.settings import Settings  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.observability.listener import Listener  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402

PROGRAM = str(Path(__file__).with_name("programs") / "resumable.py")
PATIENCE = 60.0


class Gated(CheckpointFolder):
    """A folder on a volume so slow that a save ends only when the test lets it."""

    def __init__(self, folder: Path, *, attempt: int = 0) -> None:
        super().__init__(folder, attempt=attempt)
        self.written = threading.Event()
        self.open = threading.Event()

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> Path:
        def write_and_wait(folder: Path) -> None:
            write(folder)
            self.written.set()
            assert self.open.wait(PATIENCE)

        return super().save(step, content, write_and_wait, keep=keep)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Gated]:
    folder = Gated(tmp_path / "job")
    yield folder
    folder.open.set()


def state_of(model: nn.Module) -> TrainingState:
    return TrainingState(model, torch.optim.AdamW(model.parameters()))


def step(state: TrainingState) -> None:
    state.model(torch.ones(2, 4)).sum().backward()
    state.optimizer.step()


def asynchronous(folder: CheckpointFolder, group: Group) -> Checkpoints:
    return Checkpoints(folder, group, asynchronous=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Training:
    return whole(2, PROGRAM, str(tmp_path_factory.mktemp("undisturbed")))


def test_what_is_saved_is_the_state_of_its_step_whatever_the_training_does_meanwhile(
    gated: Gated, group: Group
) -> None:
    state = state_of(nn.Linear(4, 2))
    step(state)
    expected = {name: value.clone() for name, value in state.model.state_dict().items()}
    checkpoints = asynchronous(gated, group)
    checkpoints.save(state, Position(0, 2, 1))
    assert gated.written.wait(PATIENCE)
    step(state)
    assert checkpoints.durable_step() is None
    assert gated.versions() == []
    gated.open.set()
    checkpoints.finish()
    assert checkpoints.durable_step() == 1
    (found,) = gated.newest()
    saved = load_file(found.folder / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in expected.items())
    assert not torch.equal(saved["weight"], state.model.weight)


def test_memory_that_was_made_ready_is_what_the_first_save_copies_into(gated: Gated, group: Group) -> None:
    state = state_of(nn.Linear(4, 2))
    step(state)
    checkpoints = asynchronous(gated, group)
    checkpoints.prepare(state)
    checkpoints.finish()
    ready = checkpoints._snapshots._copies["model"]._buffers["weight"]
    checkpoints.save(state, Position(0, 2, 1))
    assert checkpoints._snapshots._copies["model"]._buffers["weight"] is ready
    assert torch.equal(ready, state.model.weight)
    gated.open.set()
    checkpoints.finish()


def test_a_save_waits_for_the_one_before_and_none_is_left_out(gated: Gated, group: Group) -> None:
    state = state_of(nn.Linear(4, 2))
    checkpoints = asynchronous(gated, group)
    checkpoints.save(state, Position(0, 2, 1))
    assert gated.written.wait(PATIENCE)
    opener = threading.Timer(0.1, gated.open.set)
    opener.start()
    checkpoints.save(state, Position(0, 4, 2))
    assert gated.open.is_set()
    assert checkpoints.durable_step() in (1, 2)
    checkpoints.finish()
    assert [version.step for version in gated.versions()] == [2, 1]
    opener.join()


def test_a_failure_to_write_reaches_the_training_at_its_next_step_its_next_save_or_its_end(
    tmp_path: Path, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    state = state_of(nn.Linear(4, 2))

    def failing() -> Checkpoints:
        checkpoints = asynchronous(CheckpointFolder(tmp_path / "file"), group)
        checkpoints.save(state, Position(0, 2, 1))
        return checkpoints

    with pytest.raises(SaveError, match=r"no checkpoint at step 1: .*File exists"):
        failing().save(state, Position(0, 4, 2))
    with pytest.raises(SaveError, match="no checkpoint at step 1"):
        failing().finish()
    checkpoints = failing()
    while not checkpoints._background.failed:
        pass
    with pytest.raises(SaveError, match="no checkpoint at step 1"):
        checkpoints.durable_step()
    assert caplog.text.count("no checkpoint at step 1") == 3


def test_an_older_attempt_that_is_still_writing_never_renames(tmp_path: Path, group: Group) -> None:
    old = Gated(tmp_path, attempt=0)
    checkpoints = asynchronous(old, group)
    checkpoints.save(state_of(nn.Linear(4, 2)), Position(0, 2, 9))
    assert old.written.wait(PATIENCE)
    newer = Checkpoints(CheckpointFolder(tmp_path, attempt=1), group)
    newer.save(state_of(nn.Linear(4, 2)), Position(0, 2, 5))
    old.open.set()
    with pytest.raises(SaveError, match="attempt 1 writes checkpoints"):
        checkpoints.finish()
    assert checkpoints_in(tmp_path) == ["step-000000005.attempt-1"]


class Reported(Listener):
    """Remembers at which step which checkpoint was reported; lets the first be written after the third step."""

    def __init__(self, folder: Gated) -> None:
        self.folder = folder
        self.step = 0
        self.steps: list[tuple[int, int]] = []

    def step_finished(self, step: int, *_: float) -> None:
        self.step = step
        if step == 3:
            assert self.folder.written.wait(PATIENCE)
            self.folder.open.set()

    def checkpoint_saved(self, step: int, _seconds: float) -> None:
        self.steps.append((step, self.step))

    def failed(self) -> None:
        self.steps.append((-1, self.step))


def train(group: Group, folder: Gated, reported: Reported, *, fail_at: int = 0) -> None:
    model = nn.Linear(1, 1)

    def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        if reported.step + 1 == fail_at:
            folder.open.set()
            raise ValueError("failed on purpose")
        return model(batch[0]).sum()

    TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=loss,
        dataset=TensorDataset(torch.ones(6, 1)),
        settings=Settings(total_epochs=1, batch_size=1, save_every_steps=2),
        checkpoints=asynchronous(folder, group),
        listeners=(reported,),
    ).run()


def test_a_training_reports_a_checkpoint_once_it_is_on_disk_and_ends_after_its_last(gated: Gated, group: Group) -> None:
    reported = Reported(gated)
    train(group, gated, reported)
    assert [step for step, _ in reported.steps] == [2, 4, 6]
    assert reported.steps[0][1] >= 3
    assert [version.step for version in gated.versions()] == [6, 4, 2]


def test_a_training_that_fails_finishes_the_checkpoint_it_has_begun_and_reports_it(gated: Gated, group: Group) -> None:
    reported = Reported(gated)
    with pytest.raises(ValueError, match="failed on purpose"):
        train(group, gated, reported, fail_at=3)
    assert reported.steps == [(2, 2), (-1, 2)]
    assert [version.step for version in gated.versions()] == [2]


@pytest.mark.full
def test_stopped_in_the_middle_of_an_epoch_the_same_curve_goes_on_bit_for_bit(
    tmp_path: Path, undisturbed: Training
) -> None:
    often = ("--asynchronous", "--save-every-steps", "1")
    ranks = plain(2, PROGRAM, str(tmp_path), *often, "--stop-at", "9", "--stop-rank", "1", "--step-seconds", "0.1")
    assert [rank.code for rank in ranks] == [143, 143], ranks[0].output
    last = max(ranks[0].losses)
    assert checkpoints_in(tmp_path)[-1] == f"step-{last:09d}.attempt-0"
    resumed = whole(2, PROGRAM, str(tmp_path), *often)
    assert min(resumed.losses) == last + 1
    assert {**ranks[0].losses, **resumed.losses} == undisturbed.losses
    assert resumed.digest == undisturbed.digest


def test_killed_while_a_checkpoint_is_being_written_the_training_resumes_from_the_last_complete_one(
    tmp_path: Path, undisturbed: Training
) -> None:
    killed = together(2, PROGRAM, str(tmp_path), "--asynchronous", "--die-while-saving", "9")
    assert killed.code != 0
    assert "RANK 0 SAVED 9" not in killed.output
    finished = [name for name in checkpoints_in(tmp_path) if not name.endswith(".unfinished")]
    assert finished[-1] == "step-000000007.attempt-0"
    assert len(checkpoints_in(tmp_path)) == len(finished) + 1
    # To the interpreters' very end: threads of the group and of the save are there until then.
    ranks = in_interpreters(2, PROGRAM, str(tmp_path), "--asynchronous")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    resumed = Training(0, "".join(rank.output for rank in ranks))
    assert min(resumed.losses) == 8
    assert {**killed.losses, **resumed.losses} == undisturbed.losses
    assert resumed.digest == undisturbed.digest
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_failure_to_write_ends_all_ranks_by_an_exception(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    first, second = in_interpreters(2, PROGRAM, str(tmp_path / "file"), "--asynchronous")
    assert first.code == 1, first.output
    assert second.code != 0, second.output
    assert "SaveError: no checkpoint at step 3" in first.output


def test_a_file_of_tensors_is_read_by_safetensors_whatever_their_types_and_shapes(tmp_path: Path) -> None:
    tensors = {
        "flag": torch.tensor([True, False, True]),
        "none": torch.zeros(0, 4),
        "number": torch.tensor(3, dtype=torch.int64),
        "half": torch.randn(3, 5).to(torch.bfloat16),
        "häuser": torch.randn(2, 2, dtype=torch.float64),
        "byte": torch.arange(7, dtype=torch.uint8),
    }
    write_tensors(tensors, tmp_path / "file.safetensors")
    read = load_file(tmp_path / "file.safetensors")
    assert {name: (value.dtype, value.shape) for name, value in read.items()} == {
        name: (value.dtype, value.shape) for name, value in tensors.items()
    }
    assert all(torch.equal(read[name], value) for name, value in tensors.items())
    with pytest.raises(TypeError, match="wave is a tensor of complex64"):
        write_tensors({"wave": torch.zeros(1, dtype=torch.complex64)}, tmp_path / "other.safetensors")
