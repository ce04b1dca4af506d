"""The parts of the library that need torch, in one process."""

import contextlib
import json
import random
import subprocess
import sys
from collections import UserDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DistributedSampler, TensorDataset  # noqa: E402
from training import environment, plain  # noqa: E402

from ddpjob_trainer import randomness  # noqa: E402
from ddpjob_trainer.activity import Activity  # noqa: E402
from ddpjob_trainer.ancestry import NothingToResumeError  # noqa: E402
from ddpjob_trainer.checkpoint import Checkpoints, MisfitError, SaveError, checkpoints  # noqa: E402
from ddpjob_trainer.environment import Environment, MisuseError, parse_environment  # noqa: E402
from ddpjob_trainer.exchange import Exchange  # noqa: E402
from ddpjob_trainer.group import Group, process_group  # noqa: E402
from ddpjob_trainer.host_copies import HostCopies  # noqa: E402
from ddpjob_trainer.listener import Listener, LogRecord, Plan  # noqa: E402
from ddpjob_trainer.optimization import Optimization  # noqa: E402
from ddpjob_trainer.sampler import Position, ResumableSampler  # noqa: E402
from ddpjob_trainer.settings import Settings  # noqa: E402
from ddpjob_trainer.snapshot import TrainingState  # noqa: E402
from ddpjob_trainer.storage import MANIFEST, CheckpointFolder, ResumeError  # noqa: E402
from ddpjob_trainer.telemetry import Telemetry  # noqa: E402
from ddpjob_trainer.trainer import Trainer, to_device  # noqa: E402
from ddpjob_trainer.tree import from_json, to_json  # noqa: E402


@pytest.fixture
def group() -> Iterator[Group]:
    with process_group(parse_environment({})) as group:
        yield group


def saved(folder: Path, group: Group) -> Checkpoints:
    return Checkpoints(CheckpointFolder(folder), Exchange(group.device))


def trained(model: nn.Module) -> TrainingState:
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    return TrainingState(model, optimizer, scheduler)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.bfloat16))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(numbers)) * self.scale


def test_a_checkpoint_restores_model_optimizer_and_scheduler_also_with_tied_weights(
    tmp_path: Path, group: Group
) -> None:
    torch.manual_seed(1)
    state = trained(Tied())
    saved(tmp_path, group).save(state, Position(1, 2, 3))
    fresh = trained(Tied())
    assert saved(tmp_path, group).resume(fresh) == Position(1, 2, 3)
    for part in ("model", "optimizer", "scheduler"):
        assert repr(getattr(fresh, part).state_dict()) == repr(getattr(state, part).state_dict())
    (folder,) = tmp_path.iterdir()
    assert torch.equal(load_file(folder / "model.safetensors")["first.weight"], state.model.first.weight)
    assert b"pickle" not in b"".join(file.read_bytes() for file in folder.iterdir())


def test_without_a_checkpoint_a_training_starts_from_the_beginning(tmp_path: Path, group: Group) -> None:
    assert saved(tmp_path / "none", group).resume(trained(Tied())) is None
    assert checkpoints(parse_environment({}), Exchange(group.device)) is None


def of_job(base: Path, group: Group, name: str, **more: str) -> Checkpoints:
    variables = {"DDPJOB_NAME": name, "DDPJOB_NAMESPACE": "team", "DDPJOB_UID": f"uid-of-{name}"}
    path = {"DDPJOB_CHECKPOINT_PATH": str(base / variables["DDPJOB_UID"])}
    found = checkpoints(parse_environment({**variables, **path, **more}), Exchange(group.device))
    assert found is not None
    return found


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_job_continues_an_older_one_until_it_has_a_checkpoint_of_its_own(tmp_path: Path, group: Group) -> None:
    first = of_job(tmp_path, group, "first")
    first.save(trained(nn.Linear(4, 2)), Position(0, 4, 2))
    first.save(trained(nn.Linear(4, 2)), Position(1, 0, 3))
    before = contents(tmp_path)
    second = of_job(tmp_path, group, "second", DDPJOB_RESUME_FROM="first", DDPJOB_CHECKPOINT_KEEP_LAST="1")
    assert second.resume(trained(nn.Linear(4, 2))) == Position(1, 0, 3)
    second.save(trained(nn.Linear(4, 2)), Position(1, 4, 4))
    second.save(trained(nn.Linear(4, 2)), Position(1, 8, 5))
    assert second.resume(trained(nn.Linear(4, 2))) == Position(1, 8, 5)
    assert contents(tmp_path / "uid-of-first") == before
    assert len([*(tmp_path / "uid-of-second").glob("step-*")]) == 1


def test_of_an_older_job_the_newest_sound_checkpoint_is_taken(tmp_path: Path, group: Group) -> None:
    first = of_job(tmp_path, group, "first")
    for step in (2, 3):
        first.save(trained(nn.Linear(4, 2)), Position(1, 0, step))
    (newest,) = tmp_path.glob("*/step-*3.attempt-0/model.safetensors")
    newest.write_bytes(b"")
    resuming = of_job(tmp_path, group, "second", DDPJOB_RESUME_FROM="first")
    assert resuming.resume(trained(nn.Linear(4, 2))) == Position(1, 0, 2)


def test_where_there_is_nothing_to_continue_nothing_is_trained_from_scratch(tmp_path: Path, group: Group) -> None:
    of_job(tmp_path, group, "first").save(trained(nn.Linear(4, 2)), Position(1, 0, 3))
    for file in tmp_path.glob("*/step-*/model.safetensors"):
        file.unlink()
    with pytest.raises(NothingToResumeError, match=r"'first' has left no sound checkpoint .* saved there: first"):
        of_job(tmp_path, group, "second", DDPJOB_RESUME_FROM="first").resume(trained(nn.Linear(4, 2)))
    with pytest.raises(MisuseError, match="DDPJOB_RESUME_FROM needs DDPJOB_UID"):
        checkpoints(parse_environment({"DDPJOB_RESUME_FROM": "first"}), Exchange(group.device))


def test_a_checkpoint_of_another_model_is_refused_with_a_message(tmp_path: Path, group: Group) -> None:
    saved(tmp_path, group).save(trained(Tied()), Position(1, 0, 3))
    with pytest.raises(MisfitError, match="does not fit this model"):
        saved(tmp_path, group).resume(trained(nn.Linear(4, 2)))


def test_state_that_needs_pickle_is_refused_and_names_its_place(tmp_path: Path, group: Group) -> None:
    state = trained(nn.Linear(4, 2))
    state.optimizer.param_groups[0]["hook"] = print
    with pytest.raises(SaveError, match=r"optimizer\.param_groups\.0\.hook is a builtin_function_or_method"):
        saved(tmp_path, group).save(state, Position())


def test_where_no_checkpoint_is_sound_or_of_this_format_nothing_is_trained_from_scratch(
    tmp_path: Path, group: Group
) -> None:
    state = trained(nn.Linear(4, 2))
    for step in (1, 2):
        saved(tmp_path, group).save(state, Position(1, 0, step))
    newest = tmp_path / "step-000000002.attempt-0" / MANIFEST
    manifest = json.loads(newest.read_text())
    manifest["content"]["format"] = 99
    newest.write_text(json.dumps(manifest))
    with pytest.raises(ResumeError, match=r"step-000000002.attempt-0 has format 99, and this library knows 1: resume "):
        saved(tmp_path, group).resume(state)
    for folder in tmp_path.iterdir():
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ResumeError, match=r"none of the 2 checkpoint\(s\) in .* is sound: .* move them away"):
        saved(tmp_path, group).resume(state)


def test_a_volume_that_takes_no_files_fails_the_save(tmp_path: Path, group: Group) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="no checkpoint at step 3"):
        saved(tmp_path / "file", group).save(trained(nn.Linear(4, 2)), Position(1, 0, 3))


AUGMENTS = """
import torch
from ddpjob_trainer import *

class Random(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(1)

drawn = []

def loss(model, batch):
    drawn.extend(batch.flatten().tolist())
    return model(batch).mean()

environment = current_environment()
with process_group(environment) as group:
    model = torch.nn.Linear(1, 1)
    Trainer(
        group=group, model=model, optimizer=torch.optim.SGD(model.parameters()), loss=loss, dataset=Random(),
        settings=Settings(total_epochs=2, batch_size=1, data_workers=2),
    ).run()
print("DRAWN", *drawn)
"""


def test_no_two_processes_that_read_samples_draw_the_same_random_numbers() -> None:
    ranks = plain(2, "-c", AUGMENTS)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    drawn = [number for rank in ranks for number in rank.output.partition("DRAWN ")[2].split()]
    assert len(set(drawn)) == len(drawn) == 16
    assert [rank.output for rank in plain(2, "-c", AUGMENTS)] == [rank.output for rank in ranks]


class Norms(Listener):
    """Remembers the norm of each step's gradients."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def logged(self, record: LogRecord) -> None:
        self.norms.append(record.gradient_norm)


def test_what_the_optimizer_does_not_change_does_not_count_for_the_norm(group: Group) -> None:
    norms = Norms()
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    Trainer(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model[1].parameters(), lr=0.0),
        loss=lambda model, batch: model(batch[0]).sum(),
        dataset=TensorDataset(torch.ones(4, 1)),
        settings=Settings(total_epochs=1, batch_size=1, log_every=1, optimization=Optimization(clip_norm=0.1)),
        listeners=(norms,),
    ).run()
    expected = float((model[0](torch.ones(1)) ** 2 + 1).sqrt().detach())
    assert norms.norms == pytest.approx([expected] * 4)
    assert model[0].weight.grad.norm() == pytest.approx(float(model[1].weight.detach().abs())), "of one step alone"


class Pair(NamedTuple):
    image: object
    label: object


def test_batches_of_any_form_keep_it_on_their_way_to_the_device() -> None:
    tensor = torch.ones(1)
    batch = {"pair": Pair(tensor, [tensor, "text"]), "rest": UserDict(both=(tensor, 3))}
    moved = to_device(batch, torch.device("meta"))
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].image.is_meta
    assert moved["pair"].label[0].is_meta
    assert moved["pair"].label[1] == "text"
    assert moved["rest"]["both"][0].is_meta
    assert moved["rest"]["both"][1] == 3


def test_a_number_of_steps_between_checkpoints_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="save_every_steps must be at least 1, not 0"):
        Settings(total_epochs=1, batch_size=1, save_every_steps=0)


def test_any_state_comes_back_as_it_was() -> None:
    state = {1: {"a": (torch.tensor(1.5), [None, True, -2])}, "b": {}, "c": float("inf"), "d": ()}
    tensors: dict[str, torch.Tensor] = {}
    assert repr(from_json(to_json(state, "state", tensors, HostCopies().copy), tensors)) == repr(state)
    assert list(tensors) == ["state.1.a.0"]


def test_all_generators_continue_where_they_were() -> None:
    def draw() -> tuple[float, ...]:
        return (torch.rand(()).item(), random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn())  # noqa: NPY002, S311

    randomness.seed_everything(5)
    draw()
    state = randomness.capture()
    expected = draw()
    assert draw() != expected
    randomness.restore(state)
    assert draw() == expected


def test_generators_are_restored_from_a_checkpoint_of_an_older_version() -> None:
    randomness.seed_everything(5)
    state = json.loads(randomness.capture())
    version, numbers, gauss = random.getstate()
    state["python"] = [version, list(numbers), gauss]
    state["numpy"]["state"]["key"] = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    expected = random.random(), np.random.rand()  # noqa: NPY002, S311
    randomness.restore(json.dumps(state).encode())
    assert (random.random(), np.random.rand()) == expected  # noqa: NPY002, S311


def test_a_fresh_epoch_is_the_one_of_torchs_own_sampler() -> None:
    for epoch in (0, 1):
        for rank in range(3):
            own = ResumableSampler(12, rank=rank, world_size=3, batch_size=2, seed=9)
            own.start_at(Position(epoch=epoch))
            torchs = DistributedSampler(range(12), num_replicas=3, rank=rank, seed=9)
            torchs.set_epoch(epoch)
            assert list(own) == list(torchs)
            assert len(own) == len(torchs)


def test_tensors_of_any_type_and_shape_reach_the_other_ranks(group: Group) -> None:
    tensors = {
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.zeros(0, 4),
        "half": torch.ones(2, 3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
    }
    received = Exchange(group.device).broadcast_tensors(tensors)
    assert all(torch.equal(received[name], tensor) for name, tensor in tensors.items())
    assert Exchange(group.device).gather_bytes(b"") == [b""]


def test_what_is_gathered_beside_the_training_arrives_whole_or_is_refused(group: Group) -> None:
    exchange = Exchange(group.device)
    waits = [exchange.begin_to_gather(data, 3) for data in (b"", b"a", b"abc")]
    with ThreadPoolExecutor(1) as thread:
        assert [thread.submit(each.result).result() for each in waits] == [[b""], [b"a"], [b"abc"]]
    with pytest.raises(ValueError, match="4 bytes are to be gathered, of 3 at most"):
        exchange.begin_to_gather(b"abcd", 3)


def test_the_state_of_all_generators_has_room_to_spare() -> None:
    random.gauss(0, 1)
    assert len(randomness.capture()) < randomness.CAPACITY / 2


def test_leaving_the_group_right_after_a_collective_never_hangs() -> None:
    program = (
        "import torch, torch.distributed as dist\n"
        "from ddpjob_trainer import *\n"
        "for _ in range(300):\n"
        "    with process_group(current_environment()) as group:\n"
        "        dist.all_reduce(torch.ones(1))\n"
        "        Exchange(group.device).sum(1.0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def job(**variables: str) -> Environment:
    return parse_environment(variables)


def test_a_port_that_does_not_exist_is_said_once(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    place = dict.fromkeys(("RANK", "LOCAL_RANK"), "1") | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
    beyond = job(**place, MASTER_ADDR="first", MASTER_PORT="1", DDPJOB_METRICS_PORT="65535")
    assert Telemetry(beyond, group).port is None
    assert caplog.text.count("port 65536 serves no metrics and no progress") == 1


def test_a_progress_file_that_cannot_be_written_is_said_once(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry(job(DDPJOB_PROGRESS_FILE=str(tmp_path / "missing" / "file")), group)
    telemetry.finished()
    telemetry.finished()
    assert caplog.text.count("progress is no longer written to a file") == 1


def test_speed_and_remaining_time_follow_what_was_measured_between_log_steps(group: Group) -> None:
    now = 50.0
    telemetry = Telemetry(job(), group, clock=lambda: now, wall_clock=lambda: 1.7e9 + now)
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
    """Remembers what a training told, in one row."""

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


def test_a_training_tells_what_it_does(tmp_path: Path, group: Group) -> None:
    heard = Heard()
    model = nn.Linear(1, 1)
    Trainer(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).sum(),
        dataset=TensorDataset(torch.ones(2, 1)),
        settings=Settings(total_epochs=1, batch_size=1, save_every_steps=1),
        evaluate=lambda _: 1.0,
        checkpoints=saved(tmp_path, group),
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
        return model(batch[0]).sum()

    with pytest.raises(ValueError, match="failed on purpose") if fail_at else contextlib.nullcontext():
        Trainer(
            group=group,
            model=model,
            optimizer=torch.optim.SGD(model.parameters()),
            loss=loss,
            dataset=TensorDataset(torch.ones(4, 1)),
            settings=Settings(total_epochs=1, batch_size=1, log_every=2),
            listeners=(heard,),
        ).run()
    return heard.row


def test_a_log_step_but_the_first_is_told_of_before_the_ranks_need_each_other_again(group: Group) -> None:
    first = ["data", "step", "loss", "1 done", "1 logged", "data", "step", "loss", "2 done"]
    rest = ["data", "step", "loss", "2 logged", "3 done", "data", "step", "loss", "4 done", "data", "step", "4 logged"]
    assert hear_a_training(group) == first + rest


def test_a_training_that_fails_tells_of_the_log_step_before(group: Group) -> None:
    assert hear_a_training(group, fail_at=3)[-4:] == ["2 done", "data", "step", "2 logged"]


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
    Trainer(
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


def test_telemetry_tells_what_a_loop_of_ones_own_does(group: Group) -> None:
    now = 50.0
    telemetry = Telemetry(job(), group, clock=lambda: now)
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_nccl_without_a_gpu_is_a_message_and_not_a_hang() -> None:
    with (
        pytest.raises(MisuseError, match="needs a GPU for every process"),
        process_group(parse_environment({"DDPJOB_BACKEND": "nccl"})),
    ):
        pass


def test_a_lone_process_can_use_mpi_where_torch_has_it() -> None:
    if not dist.is_mpi_available():
        pytest.skip("this torch has no MPI")
    # MPI can be started only once in a process.
    program = (
        "from ddpjob_trainer import *; import torch.distributed as dist\n"
        "with process_group(current_environment()) as group: print(group.backend.value, group.world_size)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(DDPJOB_BACKEND="mpi"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "mpi 1\n", done.stderr


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, ddpjob_trainer, ddpjob_trainer.environment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_store_that_asks_for_libuv_works_in_the_image() -> None:
    program = (
        "from torch.distributed import TCPStore\n"
        "store = TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=True)\n"
        "store.set('key', 'value'); print(store.get('key').decode())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "value\n", done.stderr
