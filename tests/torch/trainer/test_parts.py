"""The parts of the library that need torch, in one process."""

import contextlib
import io
import json
import logging
import random
import re
import subprocess
import sys
import warnings
from collections import Counter, UserDict, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, TensorDataset  # noqa: E402
from training import alone, plain, run  # noqa: E402

from ddpjob_trainer.checkpointing.host_copies import HostCopies  # noqa: E402
from ddpjob_trainer.checkpointing.tree import from_json, to_json  # noqa: E402
from ddpjob_trainer.data.moving import to_device  # noqa: E402
from ddpjob_trainer.data.position import Position  # noqa: E402
from ddpjob_trainer.data.sampler import ResumableBatches  # noqa: E402
from ddpjob_trainer.data.sharing import StepSize  # noqa: E402
from ddpjob_trainer.loop.optimization import Optimization  # noqa: E402
from ddpjob_trainer.loop.settings import Interval, Settings  # noqa: E402
from ddpjob_trainer.loop.train import train  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.observability.listener import Listener, LogRecord  # noqa: E402
from ddpjob_trainer.observability.log import EpochLines, configure_logging  # noqa: E402
from ddpjob_trainer.observability.reporting import StepReports  # noqa: E402
from ddpjob_trainer.process import randomness  # noqa: E402
from ddpjob_trainer.process.environment import Backend, MisuseError, parse_environment  # noqa: E402
from ddpjob_trainer.process.exchange import StreamError  # noqa: E402
from ddpjob_trainer.process.group import Group, process_group  # noqa: E402

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

model = torch.nn.Linear(1, 1)
with process_group() as group:
    train(
        model, torch.optim.SGD(model.parameters()), loss, Random(),
        Settings(total_epochs=2, batch_size=1, data_workers=2), group=group,
    )
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


class Cleared(torch.optim.SGD):
    """Does something of its own when gradients are cleared."""

    cleared = 0

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 as torch has it
        self.cleared += 1
        super().zero_grad(set_to_none)


def test_an_optimizer_that_clears_gradients_in_its_own_way_is_asked_to(group: Group) -> None:
    model = nn.Linear(1, 1)
    optimizer = Cleared(model.parameters(), lr=0.1)
    TrainingLoop(
        group=group,
        model=model,
        optimizer=optimizer,
        loss=lambda model, batch: model(batch[0]).sum(),
        dataset=TensorDataset(torch.ones(3, 1)),
        settings=Settings(total_epochs=1, batch_size=1),
    ).run()
    assert optimizer.cleared == 3


def test_what_the_optimizer_does_not_change_does_not_count_for_the_norm(group: Group) -> None:
    norms = Norms()
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    TrainingLoop(
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


@dataclass(frozen=True)
class Sample:
    """What a batch may be."""

    image: object
    label: object
    count: int = field(init=False, default=3)


class Own(list):
    """A list whose class has other arguments."""

    def __init__(self, values: object, kind: str) -> None:
        super().__init__(values)
        self.kind = kind


def test_a_batch_keeps_its_type_whatever_it_is() -> None:
    meta, tensor = torch.device("meta"), torch.ones(2, 3)
    moved = to_device(Sample(tensor, ["text", tensor]), meta)
    assert isinstance(moved, Sample)
    assert (moved.image.is_meta, moved.label[0], moved.label[1].is_meta, moved.count) == (True, "text", True, 3)
    counts = defaultdict(list, images=[tensor])
    moved = to_device(counts, meta)
    assert (type(moved), moved["more"], moved["images"][0].is_meta) == (defaultdict, [], True)
    assert not counts["images"][0].is_meta, "the data set may keep it"
    packed = nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    assert type(to_device(packed, meta)) is type(packed)
    assert to_device(packed, meta).data.is_meta
    moved = to_device(Own([tensor], "kind"), meta)
    assert (type(moved), moved.kind, moved[0].is_meta) == (Own, "kind", True)
    assert to_device(Sample, meta) is Sample
    assert to_device(torch.float32, meta) is torch.float32


def criterion_of_its_own() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(1, 1)
    return model, torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(7))])


def wrapped_before() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.DataParallel(nn.Linear(1, 1))
    return model, torch.optim.SGD(model.parameters())


def without_values() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(1, 1, device="meta")
    return model, torch.optim.SGD(model.parameters())


def in_parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor  # noqa: PLC0415 takes long

    model, mesh = nn.Linear(1, 1), DeviceMesh("cpu", [0])
    model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), mesh, [Shard(0)]))
    return model, torch.optim.SGD(model.parameters())


def fully_sharded() -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: PLC0415 takes long

    # That a world of one shards nothing.
    with warnings.catch_warnings(action="ignore"):
        part = FullyShardedDataParallel(nn.Linear(1, 1), device_id=torch.device("cpu"))
    model = nn.Sequential(part, nn.Linear(1, 1))
    return model, torch.optim.SGD(model.parameters())


def fully_sharded_by_the_new_way() -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415 takes long
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 likewise

    model = nn.Linear(1, 1)
    fully_shard(model, mesh=DeviceMesh("cpu", [0]))
    return model, torch.optim.SGD(model.parameters())


def all_frozen() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(1, 1).requires_grad_(requires_grad=False)
    return model, torch.optim.SGD(model.parameters())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (criterion_of_its_own, r"changes 1 parameter\(s\) that the model does not have, the first of shape \(7,\)"),
        (wrapped_before, "the model is already a DataParallel: pass the model itself"),
        (without_values, "'weight' has no values"),
        (in_parts, "'weight' is a DTensor"),
        (fully_sharded, "the model's '0' is already a FullyShardedDataParallel: pass the model itself"),
        (fully_sharded_by_the_new_way, "the model is already a FSDPModule: pass the model itself"),
        (all_frozen, "nothing to train"),
    ],
)
def test_what_cannot_be_trained_together_is_one_sentence_at_the_start(
    group: Group, made: Callable[[], tuple[nn.Module, torch.optim.Optimizer]], message: str
) -> None:
    model, optimizer = made()
    with pytest.raises(MisuseError, match=message):
        TrainingLoop(
            group=group,
            model=model,
            optimizer=optimizer,
            loss=lambda model, batch: model(batch[0]).mean(),
            dataset=TensorDataset(torch.ones(4, 1)),
            settings=Settings(total_epochs=1, batch_size=1),
        )


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.PCG64])
def test_a_step_draws_the_same_numbers_again_whatever_generator_numpy_has(kind: Callable[[], Any]) -> None:
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(kind())
    try:
        drawn = []
        for step in (7, 8, 7):
            randomness.seed_step(1, 0, step)
            # One number that is drawn is kept for the next time, unless a seed forgets it.
            numpys = np.random.standard_normal(3).tolist()  # noqa: NPY002 what users call
            drawn.append((numpys, random.random(), float(torch.rand(()))))  # noqa: S311 likewise
    finally:
        np.random.set_bit_generator(before)
    assert drawn[0] == drawn[2] != drawn[1]


class Streamed(IterableDataset[torch.Tensor]):
    """Yields its samples, and may know how many there are."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(4, 1))


class CountedStream(Streamed):
    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("dataset", [Streamed(), CountedStream(), iter([1])], ids=["stream", "counted", "iterator"])
def test_a_data_set_without_indices_is_one_sentence_at_the_start(group: Group, dataset: Any) -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(MisuseError, match=r"has no indices .* write a loop with Session, which takes any loader"):
        train(
            model,
            torch.optim.SGD(model.parameters()),
            lambda model, batch: model(batch).mean(),
            dataset,
            Settings(total_epochs=1, batch_size=1),
            group=group,
        )


class Unfreezes(Listener):
    """Unfreezes a parameter after the second step."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter

    def step_finished(self, step: int, *_: object) -> None:
        self.parameter.requires_grad_(step >= 2)


def test_a_parameter_that_is_unfrozen_later_is_refused_before_it_can_differ(group: Group) -> None:
    model = nn.Linear(1, 1)
    model.bias.requires_grad_(requires_grad=False)
    loop = TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).mean(),
        dataset=TensorDataset(torch.ones(6, 1)),
        settings=Settings(total_epochs=1, batch_size=1, log_every=1),
        listeners=(Unfreezes(model.bias),),
    )
    with pytest.raises(MisuseError, match="the gradient of 'bias' is not averaged"):
        loop.run()
    assert loop.position.step == 2


def test_a_process_group_that_exists_is_used_and_not_left(group: Group) -> None:
    with process_group() as same:
        assert (same.rank, same.world_size, same.backend, same.device) == (0, 1, group.backend, group.device)
    assert group.sum(1.0) == [1.0]


def test_a_loss_that_cannot_be_read_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    heard = Finished()
    reports = StepReports(heard, epochs=1, steps_per_epoch=3, done=0, world_size=1, log_every=1)
    for _ in range(3):
        reports.step(torch.ones(2))
    assert caplog.text.count("the loss cannot be read: ") == 1
    assert heard.finishes == 1


def test_handlers_that_a_program_has_stay(capsys: pytest.CaptureFixture[str]) -> None:
    root, own = logging.getLogger(), logging.NullHandler()
    root.addHandler(own)
    try:
        before = list(root.handlers)
        configure_logging(parse_environment({}))
        assert root.handlers == before
        assert logging.getLogger("ddpjob_trainer.x").isEnabledFor(logging.INFO)
        assert capsys.readouterr().err == ""
    finally:
        root.removeHandler(own)
        logging.getLogger("ddpjob_trainer").setLevel(logging.NOTSET)


def test_settings_that_cannot_work_are_named() -> None:
    with pytest.raises(ValueError, match=r"Settings\.save_every_steps must be at least 1, not 0"):
        Settings(total_epochs=1, batch_size=1, save_every_steps=0)
    with pytest.raises(ValueError, match=r"Settings\.scheduler_interval must be one of step, epoch, not 'batch'"):
        Settings(total_epochs=1, batch_size=1, scheduler_interval="batch")
    assert Settings(total_epochs=1, batch_size=1, scheduler_interval="epoch").scheduler_interval is Interval.EPOCH


@pytest.mark.parametrize(("device", "name"), [("cuda:3", "GPU11"), ("cpu", "CPU11")])
def test_the_line_of_an_epoch_names_device_and_rank(device: str, name: str) -> None:
    lines = io.StringIO()
    EpochLines(Group(11, 16, torch.device(device), Backend.GLOO, parse_environment({})), 32, lines).epoch_started(47, 4)
    assert lines.getvalue() == f"[{name}] Epoch 47 | Batchsize: 32 | Steps: 4\n"


def of_samples(group: Group, dataset: TensorDataset, **more: Any) -> TrainingLoop:
    """A training of a small model with BatchNorm, which takes no batch of one sample."""
    model = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))
    settings = Settings(total_epochs=1, batch_size=2, **more.pop("settings", {}))
    return TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        dataset=dataset,
        settings=settings,
        **more,
    )


def test_data_of_which_no_sample_would_be_read_are_named(group: Group) -> None:
    with pytest.raises(MisuseError, match="the data set is empty: check the path that the program reads it from"):
        of_samples(group, TensorDataset(torch.ones(0, 1))).run()
    with pytest.raises(
        MisuseError,
        match="the data set has 1 samples, fewer than 1 x 2, a batch for each rank, and drop_last leaves them out",
    ):
        of_samples(group, TensorDataset(torch.ones(1, 1)), settings={"drop_last": True}).run()


def test_the_last_samples_are_left_out_where_they_make_no_whole_batch(group: Group) -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        of_samples(group, TensorDataset(torch.randn(5, 1))).run()
    trainer = of_samples(group, TensorDataset(torch.randn(5, 1)), settings={"drop_last": True})
    trainer.run()
    assert (trainer.steps_per_epoch, trainer.position) == (2, Position(1, 0, 2))


def test_samples_of_any_form_are_made_a_batch_by_ones_own_function(group: Group) -> None:
    sizes = []

    def longest(samples: list[tuple[torch.Tensor]]) -> tuple[torch.Tensor]:
        sizes.append(len(samples))
        return (torch.stack([sample for (sample,) in samples]) * 2,)

    of_samples(group, TensorDataset(torch.randn(4, 1)), collate_fn=longest).run()
    assert sizes == [2, 2]


class Either(nn.Module):
    """Uses one of two layers, by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
        self.calls = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers[self.calls % 2](batch)


@pytest.mark.parametrize("find", [False, True])
def test_a_model_that_leaves_out_parameters_trains_where_they_are_looked_for(group: Group, find: bool) -> None:  # noqa: FBT001
    model = Either()
    trainer = TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).mean(),
        dataset=TensorDataset(torch.ones(4, 1)),
        settings=Settings(total_epochs=1, batch_size=1, optimization=Optimization(find_unused_parameters=find)),
    )
    with contextlib.nullcontext() if find else pytest.raises(RuntimeError, match="find_unused_parameters=True"):
        trainer.run()


def test_an_optimizer_that_has_state_before_its_first_step_keeps_it_where_the_model_is() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5, initial_accumulator_value=0.1)
    data = TensorDataset(torch.ones(4, 1))
    train(
        model,
        optimizer,
        lambda model, batch: model(batch[0]).square().mean(),
        data,
        Settings(total_epochs=9, batch_size=2),
    )
    assert model(torch.ones(1, 1)).abs().item() < 0.1
    assert {tuple(state) for state in optimizer.state.values()} == {("step", "sum")}


def test_progress_of_a_loop_that_was_done_before_is_finished() -> None:
    heard = Finished()
    StepReports(heard, epochs=2, steps_per_epoch=3, done=6, world_size=1, log_every=1)
    assert heard.finishes == 1


class Finished(Listener):
    """Counts how often a training has finished."""

    finishes = 0

    def finished(self) -> None:
        self.finishes += 1


NOT_ALIKE = """
import torch
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset
from ddpjob_trainer import *
from ddpjob_trainer.process.environment import MisuseError

class Shares(IterableDataset):
    def __init__(self, group):
        self.group = group
    def __iter__(self):
        # As if each rank's file began with the same.
        yield torch.zeros(4)
        yield from torch.arange(80.0).reshape(20, 4)[self.group.rank :: self.group.world_size]

with process_group() as group:
    generator = torch.Generator().manual_seed(group.rank)
    whole = TensorDataset(torch.arange(160.0).reshape(40, 4))
    drawn = Subset(whole, torch.randperm(40, generator=generator)[:32].tolist())
    given = {
        "as many": TensorDataset(torch.ones(40 + group.rank, 4)),
        "drawn": drawn,
        "deeper": ConcatDataset([whole, drawn]),
        "batches": DataLoader(drawn, batch_sampler=[[1, 2], [3, 4]]),
        "shared": TensorDataset(torch.arange(40.0 * group.rank, 40.0 * group.rank + 40).reshape(10, 4)),
        "a list": [(torch.ones(4), index == group.rank) for index in range(16)],
        "last digits": TensorDataset(torch.ones(16, 4) * (1 + 1e-6 * group.rank)),
        "past": whole,
    }
    for name, data in given.items():
        model = torch.nn.Linear(4, 1)
        def loss(together, batch):
            used = model if name == "past" else together
            return used(batch[0]).square().mean()
        optimizer, settings = torch.optim.SGD(model.parameters(), lr=1e-9), Settings(total_epochs=1, batch_size=1)
        if name == "batches":
            settings = Settings(total_epochs=1, batch_size=2)
        try:
            train(model, optimizer, loss, data, settings, group=group)
            print(name, "trained", flush=True)
        except MisuseError as reason:
            print(name, "refused:", reason, flush=True)
    try:
        with Session(group=group) as session:
            model = session.model(torch.nn.Linear(4, 1))
            optimizer = session.keep("optimizer", torch.optim.SGD(model.parameters(), lr=1e-9))
            for step in session.steps(DataLoader(Shares(group), 1), epochs=1):
                with step as numbers:
                    session.backward(model(numbers).mean())
                    session.step()
    except MisuseError as reason:
        print("streams refused:", reason, flush=True)
"""


def test_ranks_that_would_not_train_one_model_with_one_data_set_are_refused_by_all_of_them() -> None:
    ranks = plain(2, "-c", NOT_ALIKE)
    others = "the data set of rank 1 has other samples than that of rank 0"
    for rank in ranks:
        assert rank.code == 0, rank.output
        said = dict(re.findall(r"^([a-z ]+) (trained|refused: .*)$", rank.output, re.MULTILINE))
        assert said.pop("last digits") == "trained"
        assert said.pop("as many").startswith(
            "refused: the data set has 40 samples on rank 0 and 41 on rank 1: it must"
        )
        assert said.pop("streams").startswith("refused: the loader began with the same batch on all ranks, and now")
        assert said.pop("past").startswith("refused: the gradients of step 1 differ between the ranks")
        assert list(said) == ["drawn", "deeper", "batches", "shared", "a list"]
        assert all(each.startswith(f"refused: {others}") for each in said.values())


def test_any_state_comes_back_as_it_was() -> None:
    state = {1: {"a": (torch.tensor(1.5), [None, True, -2])}, "b": {}, "c": float("inf"), "d": ()}
    tensors: dict[str, torch.Tensor] = {}
    assert repr(from_json(to_json(state, "state", tensors, HostCopies().copy), tensors)) == repr(state)
    assert list(tensors) == ["state.1.a.0"]


def test_numbers_of_numpy_come_back_as_numbers() -> None:
    state = Counter({np.int64(30): np.int64(1), 60: 2})
    back = from_json(json.loads(json.dumps(to_json([state, np.float32(0.5)], "state", {}, HostCopies().copy))), {})
    assert back == [state, 0.5]
    assert [type(back[0]), type(back[1]), *map(type, back[0])] == [Counter, float, int, int]


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
            own = ResumableBatches(12, rank=rank, world_size=3, batch_size=2, seed=9)
            own.start_at(Position(epoch=epoch), StepSize(1, 3))
            torchs = DistributedSampler(range(12), num_replicas=3, rank=rank, seed=9)
            torchs.set_epoch(epoch)
            assert list(own) == list(BatchSampler(torchs, 2, drop_last=False))
            assert len(own) == len(torchs) // 2


def test_pieces_of_any_size_reach_all_ranks_and_a_failure_to_read_them_too(group: Group) -> None:
    def read(index: int, into: memoryview) -> None:
        if index == 2:
            raise OSError("the volume is gone")
        into[:] = bytes([index + 1]) * len(into)

    def received(*sizes: int) -> Iterator[list[int]]:
        return (piece.tolist() for piece in group.exchange.stream(sizes, read))

    assert list(received()) == []
    assert list(received(3, 1)) == [[1, 1, 1], [2]]
    pieces = received(3, 1, 2)
    assert [next(pieces), next(pieces)] == [[1, 1, 1], [2]]
    with pytest.raises(StreamError, match="the volume is gone"):
        next(pieces)
    assert group.exchange.gather_bytes(b"") == [b""]


def test_what_is_gathered_in_the_background_arrives_whole_or_is_refused(group: Group) -> None:
    exchange = group.exchange
    waits = [exchange.begin_to_gather(data, 3) for data in (b"", b"a", b"abc")]
    with ThreadPoolExecutor(1) as thread:
        assert [thread.submit(each.result).result() for each in waits] == [[b""], [b"a"], [b"abc"]]
    with pytest.raises(ValueError, match="cannot gather 4 bytes: at most 3 are allowed"):
        exchange.begin_to_gather(b"abcd", 3)


def test_the_state_of_all_generators_has_room_to_spare() -> None:
    random.gauss(0, 1)
    assert len(randomness.capture()) < randomness.CAPACITY / 2


def test_leaving_the_group_right_after_a_collective_never_hangs() -> None:
    program = (
        "import torch, torch.distributed as dist\n"
        "from ddpjob_trainer import *\n"
        "for _ in range(300):\n"
        "    with process_group() as group:\n"
        "        dist.all_reduce(torch.ones(1))\n"
        "        group.sum(1.0)\n"
    )
    done = alone("-c", program)
    assert done.code == 0, done.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_nccl_without_a_gpu_is_a_message_and_not_a_hang() -> None:
    with (
        pytest.raises(MisuseError, match="needs a GPU for every process"),
        process_group(parse_environment({"DDPJOB_BACKEND": "nccl"})),
    ):
        pass


def test_a_lone_process_can_use_mpi_where_torch_has_it() -> None:
    # In this process, which was not asked for it, the image hides MPI; and it can be started only once in a process.
    program = (
        "from ddpjob_trainer import *; import torch.distributed as dist\n"
        "if not dist.is_mpi_available(): raise SystemExit('none')\n"
        "with process_group() as group: print(group.backend.value, group.world_size)"
    )
    done = run([sys.executable, "-c", program], {"DDPJOB_BACKEND": "mpi"})
    if done.output == "none\n":
        pytest.skip("this torch has no MPI")
    assert (done.code, done.output) == (0, "mpi 1\n")


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, ddpjob_trainer, ddpjob_trainer.process.environment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_store_that_asks_for_libuv_works_in_the_image() -> None:
    program = (
        "from torch.distributed import TCPStore\n"
        "store = TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=True)\n"
        "store.set('key', 'value'); print(store.get('key').decode())"
    )
    assert alone("-c", program).output == "value\n"
