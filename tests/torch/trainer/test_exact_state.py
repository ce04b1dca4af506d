"""What is saved comes back the same, whatever its layout and type, or is refused by name before the first step."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.optim.swa_utils import SWALR  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints, MisfitError  # noqa: E402
from ddpjob_trainer.checkpointing.snapshot import TrainingState  # noqa: E402
from ddpjob_trainer.checkpointing.storage import MANIFEST, CheckpointFolder  # noqa: E402
from ddpjob_trainer.checkpointing.tensor_file import PIECE, TensorReader, pieces, write_tensors  # noqa: E402
from ddpjob_trainer.data.position import Position  # noqa: E402
from ddpjob_trainer.loop.settings import Settings  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.process.environment import MisuseError  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402

WIDTH = 1 << 14
"""Makes a tensor large enough to be copied after the save has returned."""

both = pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])


def checkpoints_in(folder: Path, group: Group, *, asynchronous: bool = False) -> Checkpoints:
    return Checkpoints(CheckpointFolder(folder), group, asynchronous=asynchronous)


def save(folder: Path, group: Group, state: TrainingState, *, asynchronous: bool = False) -> None:
    checkpoints = checkpoints_in(folder, group, asynchronous=asynchronous)
    checkpoints.prepare(state)
    checkpoints.finish()
    checkpoints.save(state, Position(0, 0, 3), during_next_step=True)
    checkpoints.finish()


def resume(folder: Path, group: Group, state: TrainingState) -> None:
    assert checkpoints_in(folder, group).resume(state) == Position(0, 0, 3)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride()) and torch.equal(
        one, other
    )


def convolution() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64)).to(memory_format=torch.channels_last)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> list[float]:
    batch = torch.linspace(-1, 1, 2 * 64 * 25).reshape(2, 64, 5, 5).to(memory_format=torch.channels_last)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = (model(batch).sin() ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


@both
@pytest.mark.parametrize("older", [False, True], ids=["", "saved by an older version"])
def test_a_fused_optimizer_of_a_model_in_channels_last_continues_bit_for_bit(
    tmp_path: Path, group: Group, *, asynchronous: bool, older: bool
) -> None:
    model, optimizer = convolution()
    steps(model, optimizer, 3)
    save(tmp_path, group, TrainingState(model, optimizer), asynchronous=asynchronous)
    if older:
        without_layouts(tmp_path)
    expected = steps(model, optimizer, 3)
    fresh, other = convolution()
    resume(tmp_path, group, TrainingState(fresh, other))
    assert [each.stride() for each in other.state[fresh[0].weight].values()][1:] == [fresh[0].weight.stride()] * 2
    assert steps(fresh, other, 3) == expected
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), fresh.parameters(), strict=True))


def without_layouts(folder: Path) -> None:
    """As checkpoints were before they had them."""

    def stripped(tree: Any) -> Any:
        if isinstance(tree, list):
            return [stripped(each) for each in tree]
        if isinstance(tree, dict):
            return {key: stripped(value) for key, value in tree.items() if key not in ("strides", "parameterStrides")}
        return tree

    (manifest,) = folder.glob(f"*/{MANIFEST}")
    manifest.write_text(json.dumps(stripped(json.loads(manifest.read_text()))))


def test_a_state_of_another_layout_than_its_parameter_keeps_it_and_one_of_the_same_follows(
    tmp_path: Path, group: Group
) -> None:
    model, optimizer = convolution()
    steps(model, optimizer, 1)
    weight = model[0].weight
    own = optimizer.state[weight]
    own["exp_avg"] = own["exp_avg"].contiguous()
    save(tmp_path, group, TrainingState(model, optimizer))
    fresh, other = convolution()
    fresh.to(memory_format=torch.contiguous_format)
    fresh[0].weight.data = fresh[0].weight.data.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    resume(tmp_path, group, TrainingState(fresh, other))
    found = other.state[fresh[0].weight]
    assert same(found["exp_avg"], own["exp_avg"])
    assert found["exp_avg_sq"].stride() == fresh[0].weight.stride() != weight.stride()
    assert torch.equal(found["exp_avg_sq"], own["exp_avg_sq"])


class Everything(nn.Module):
    """Tensors of many types and layouts, with other values for another seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.turned = nn.Parameter(torch.randn(5, 3).t())
        self.gaps = nn.Parameter(torch.randn(6, 4)[::2, 1:3])
        self.tied = self.turned
        self.brief = nn.Parameter(torch.randn(4).to(torch.bfloat16))
        self.large = nn.Parameter(torch.randn(2, WIDTH).t())
        flat = torch.randn(12)
        for name, buffer in {
            "wave": torch.randn(3, 2, dtype=torch.complex64).t(),
            "mirrored": torch.randn(3, dtype=torch.complex128).conj(),
            "parts": torch.randn(3, dtype=torch.complex64).conj().imag,
            "flags": torch.rand(7) > 0.5,
            "bytes": torch.randint(-9, 9, (3,), dtype=torch.int8),
            "expanded": torch.randn(1, 3).expand(4, 3),
            "number": torch.tensor(torch.randn(()).item(), dtype=torch.float64),
            "none": torch.zeros(0, 4),
            "window": flat[:8],
            "other_window": flat[4:],
            "image": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
            "small": torch.randn(3, 4).to(torch.float8_e5m2),
        }.items():
            self.register_buffer(name, buffer)


class Peculiar(torch.optim.Optimizer):
    """An optimizer whose state has other types than its parameters, and other things than tensors."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": torch.tensor(0.5)})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 as the class above
        for group in self.param_groups:
            for each in group["params"]:
                mean = torch.randn(each.shape, dtype=torch.float32)
                self.state[each] = {
                    "mean": mean,
                    "same": mean,
                    "codes": torch.randint(-9, 9, each.shape, dtype=torch.int8),
                    "signs": mean > 0,
                    "turned": torch.randn(3, 2).t(),
                    "wave": torch.randn(3, 2, dtype=torch.complex64).t(),
                    "history": [torch.randn(2), None, torch.tensor(2, dtype=torch.int64)],
                    "kind": "second order",
                    "count": 3,
                    "step": torch.tensor(3.0),
                }
                each.add_(1)


def of_everything(seed: int) -> TrainingState:
    model = Everything(seed)
    optimizer = Peculiar(model.parameters())
    return TrainingState(model, optimizer)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [tensor for value in values for tensor in tensors_in(value)]


@both
def test_whatever_its_type_and_layout_a_tensor_comes_back_as_it_was(
    tmp_path: Path, group: Group, *, asynchronous: bool
) -> None:
    state, fresh = of_everything(1), of_everything(2)
    state.optimizer.step()
    save(tmp_path, group, state, asynchronous=asynchronous)
    resume(tmp_path, group, fresh)
    saved, found = state.model.state_dict(), fresh.model.state_dict()
    assert [name for name in saved if not same(saved[name], found[name])] == []
    # What was one tensor still is, and a part of another's memory still is one.
    assert fresh.model.tied is fresh.model.turned
    fresh.model.window[4] = 9
    assert fresh.model.other_window[0] == 9
    saved, found = state.optimizer.state_dict(), fresh.optimizer.state_dict()
    assert repr(found) == repr(saved)
    assert all(same(one, two) for one, two in zip(tensors_in(saved), tensors_in(found), strict=True))
    assert found["state"][0]["same"] is found["state"][0]["mean"]
    # A second resume goes into the same memory.
    before = [each.data_ptr() for each in tensors_in(found["state"])]
    resume(tmp_path, group, fresh)
    assert [each.data_ptr() for each in tensors_in(fresh.optimizer.state_dict()["state"])] == before


def test_a_checkpoint_of_another_type_is_refused_by_the_tensors_name(tmp_path: Path, group: Group) -> None:
    model = nn.Linear(4, 2)
    save(tmp_path, group, TrainingState(model, torch.optim.SGD(model.parameters())))
    half = nn.Linear(4, 2).to(torch.bfloat16)
    before = half.weight.clone()
    with pytest.raises(MisfitError, match="weight is bfloat16 here and float32 in the checkpoint"):
        resume(tmp_path, group, TrainingState(half, torch.optim.SGD(half.parameters())))
    assert torch.equal(half.weight, before)


class Versioned(nn.Linear):
    """Converts the state of its first version."""

    _version = 2

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *rest: Any) -> None:
        if metadata.get("version") is None:
            state[prefix + "weight"] = state[prefix + "weight"] * 2
        super()._load_from_state_dict(state, prefix, metadata, *rest)


def test_a_module_receives_the_version_of_its_state(tmp_path: Path, group: Group) -> None:
    model, fresh = nn.Sequential(Versioned(4, 2)), nn.Sequential(Versioned(4, 2))
    save(tmp_path, group, TrainingState(model, torch.optim.SGD(model.parameters())))
    resume(tmp_path, group, TrainingState(fresh, torch.optim.SGD(fresh.parameters())))
    assert torch.equal(fresh[0].weight, model[0].weight)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2)))


def compiled_in_place() -> nn.Module:
    model = plain()
    model.compile(backend="eager")
    return model


def compiled_inside() -> nn.Module:
    model = plain()
    model[1] = torch.compile(model[1], backend="eager")
    return model


FORMS: list[Callable[[], nn.Module]] = [
    plain,
    compiled_in_place,
    compiled_inside,
    lambda: torch.compile(compiled_inside(), backend="eager"),
]


def test_checkpoints_of_compiled_models_and_of_others_are_the_same(tmp_path: Path, group: Group) -> None:
    for number, form in enumerate(FORMS):
        model = form()
        folder = tmp_path / str(number)
        save(folder, group, TrainingState(model, torch.optim.SGD(model.parameters())))
        (file,) = folder.glob("*/model.safetensors")
        assert sorted(load_file(file)) == ["0.bias", "0.weight", "1.0.bias", "1.0.weight"]
        for other in FORMS:
            fresh = other()
            resume(folder, group, TrainingState(fresh, torch.optim.SGD(fresh.parameters())))
            pairs = zip(model.parameters(), fresh.parameters(), strict=True)
            assert all(torch.equal(one, two) for one, two in pairs)


class Holding(nn.Module):
    """A model with a buffer, or with anything else in its state."""

    def __init__(self, buffer: torch.Tensor | None = None, extra: object = None) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.extra = extra
        self.register_buffer("odd", buffer)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.linear(batch)

    def get_extra_state(self) -> object:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


class Remembering(torch.optim.SGD):
    """Keeps something in its state once it has made a step."""

    def __init__(self, parameters: Any, remembered: Callable[[torch.Tensor], object]) -> None:
        super().__init__(parameters, lr=0.1)
        self.remembered = remembered

    def step(self, closure: None = None) -> None:  # noqa: ARG002 as the class above
        for each in self.param_groups[0]["params"]:
            self.state[each]["odd"] = self.remembered(each)


def of_model(**holding: Any) -> TrainingState:
    model = Holding(**holding)
    return TrainingState(model, torch.optim.SGD(model.parameters()))


def with_optimizer(make: Callable[[Any], torch.optim.Optimizer]) -> TrainingState:
    model = nn.Linear(4, 2)
    return TrainingState(model, make(model.parameters()))


def annealed() -> TrainingState:
    state = of_model()
    return TrainingState(state.model, state.optimizer, SWALR(state.optimizer, swa_lr=0.1))


def remembering(remembered: Callable[[torch.Tensor], object]) -> TrainingState:
    return with_optimizer(lambda parameters: Remembering(parameters, remembered))


@pytest.mark.parametrize(
    ("make", "message", "after"),
    [
        (lambda: of_model(buffer=torch.eye(3).to_sparse()), "odd is a Tensor of layout sparse_coo, which", 0),
        (lambda: of_model(buffer=torch.eye(3).to_sparse_csr()), "odd is a Tensor of layout sparse_csr, which", 0),
        (
            lambda: of_model(buffer=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)),
            "odd is a quantized, which",
            0,
        ),
        (lambda: of_model(buffer=torch.zeros(9).as_strided((3, 3), (1, 1))), "odd shows the same memory several", 0),
        (lambda: of_model(extra={"a": [print]}), r"_extra_state\.a\.0 is a builtin_function_or_method, which", 0),
        (annealed, r"scheduler\.\w+ is a function, which", 0),
        (
            lambda: with_optimizer(lambda each: ZeroRedundancyOptimizer(each, torch.optim.Adam)),
            r"optimizer: ZeroRedundancyOptimizer\.state_dict\(\) failed: Optimizer state has not been consolidated",
            0,
        ),
        (lambda: remembering(lambda each: each.to_sparse()), r"optimizer\.state\.0\.odd is a .* of layout sparse", 1),
        (
            lambda: remembering(lambda each: each.detach()[:1]),
            r"optimizer\.state\.\d\.odd shares memory with (weight|bias), which a resume would separate: keep a clone",
            1,
        ),
        (lambda: remembering(lambda _: set()), r"optimizer\.state\.0\.odd is a set, which", 1),
    ],
)
def test_what_could_not_be_restored_is_refused_by_name_before_anything_depends_on_it(
    tmp_path: Path, group: Group, make: Callable[[], TrainingState], message: str, after: int
) -> None:
    state = make()
    training = TrainingLoop(
        group=group,
        model=state.model,
        optimizer=state.optimizer,
        scheduler=state.scheduler,
        loss=lambda model, batch: model(batch[0]).mean(),
        dataset=TensorDataset(torch.ones(4, 4)),
        settings=Settings(total_epochs=1, batch_size=1),
        checkpoints=checkpoints_in(tmp_path, group),
    )
    with pytest.raises(MisuseError, match=f"no checkpoint could be saved: {message}"):
        training.run()
    assert training.position.step == after
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_is_read_and_written_in_pieces_that_follow_each_other(tmp_path: Path) -> None:
    # One row is more than a piece, and so is half of it; the last one is smaller than the others.
    tensors = {
        "long": torch.arange(PIECE // 4 + 5, dtype=torch.float32),
        "wide": torch.arange(2 * (PIECE // 2 + 3), dtype=torch.int32).reshape(PIECE // 2 + 3, 2).t(),
        "none": torch.zeros(0, 3),
    }
    write_tensors(tensors, tmp_path / "file")
    read = load_file(tmp_path / "file")
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    for tensor in tensors.values():
        parts = [tensor[index] for index in pieces(tensor.shape, tensor.element_size())]
        assert all(part.nbytes <= PIECE for part in parts)
        assert torch.equal(torch.cat([part.reshape(-1) for part in parts]), tensor.reshape(-1))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 8 + b"{}",
        b"\x02" + b"\0" * 7 + b"{}"[:1],
        b"\x02" + b"\0" * 7 + b"[]",
        *(
            len(header).to_bytes(8, "little") + header + b"\0" * 8
            for header in (
                b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}',
                b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
                b'{"a": {"dtype": "F32", "shape": [-2], "data_offsets": [8, 0]}}',
                b'{"a": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}}',
                b'{"a": {"dtype": "PICKLE", "shape": [2], "data_offsets": [0, 8]}}',
                b'{"a": 3}',
            )
        ),
    ],
)
def test_what_is_not_a_file_of_tensors_is_refused_before_memory_is_taken(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with file.open("rb") as stream, pytest.raises(ValueError, match="not a file of tensors"):
        TensorReader(stream, len(content))
