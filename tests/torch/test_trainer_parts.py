"""The parts of the library that need torch, in one process."""

import io
import json
import random
import subprocess
import sys
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DistributedSampler, TensorDataset  # noqa: E402
from training import environment, plain  # noqa: E402

from ddpjob_trainer import randomness  # noqa: E402
from ddpjob_trainer.environment import Backend, MisuseError, parse_environment  # noqa: E402
from ddpjob_trainer.exchange import Exchange  # noqa: E402
from ddpjob_trainer.group import Group, process_group  # noqa: E402
from ddpjob_trainer.host_copies import HostCopies  # noqa: E402
from ddpjob_trainer.listener import Listener, LogRecord  # noqa: E402
from ddpjob_trainer.log import EpochLines  # noqa: E402
from ddpjob_trainer.optimization import Optimization  # noqa: E402
from ddpjob_trainer.sampler import Position, ResumableSampler  # noqa: E402
from ddpjob_trainer.settings import Settings  # noqa: E402
from ddpjob_trainer.trainer import Trainer, to_device  # noqa: E402
from ddpjob_trainer.tree import from_json, to_json  # noqa: E402

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


@pytest.mark.parametrize(("device", "name"), [("cuda:3", "GPU11"), ("cpu", "CPU11")])
def test_the_line_of_an_epoch_names_device_and_rank(device: str, name: str) -> None:
    lines = io.StringIO()
    EpochLines(Group(11, 16, torch.device(device), Backend.GLOO), 32, lines).epoch_started(47, 4)
    assert lines.getvalue() == f"[{name}] Epoch 47 | Batchsize: 32 | Steps: 4\n"


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
