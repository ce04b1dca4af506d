"""A loss or gradient that is not finite: it is found by all ranks, and never saved over a good checkpoint."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402
from training import checkpoints_in, plain  # noqa: E402

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints  # noqa: E402
from ddpjob_trainer.checkpointing.storage import CheckpointFolder  # noqa: E402
from ddpjob_trainer.loop.finite import MOST_LEFT_OUT, NonFiniteError, OnNan  # noqa: E402
from ddpjob_trainer.loop.optimization import Optimization  # noqa: E402
from ddpjob_trainer.loop.settings import Settings  # noqa: E402
from ddpjob_trainer.loop.training_loop import TrainingLoop  # noqa: E402
from ddpjob_trainer.observability.listener import Listener, LogRecord  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402

PROGRAM = str(Path(__file__).with_name("programs") / "spoilt.py")
STEPS = 30
Spoil = Callable[[int, torch.Tensor], torch.Tensor]


def at(step: int, value: float) -> Spoil:
    return lambda call, out: out * value if call == step else out


class Heard(Listener):
    """Remembers what was found, and the losses that were logged."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self.losses: dict[int, float] = {}

    def not_finite(self, step: int, what: str) -> None:
        self.found.append((step, what))

    def logged(self, record: LogRecord) -> None:
        self.losses[record.step] = record.loss


class Training:
    """A small training of 30 steps, one of which is spoilt."""

    def __init__(self, group: Group, folder: Path, spoil: Spoil, *, optimizer: Any = None, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.heard, self.folder = Heard(), folder
        calls = 0

        def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return spoil(calls, model(batch[0])).square().mean()

        self.loop = TrainingLoop(
            group=group,
            model=self.model,
            optimizer=optimizer or torch.optim.AdamW(self.model.parameters()),
            loss=loss,
            dataset=TensorDataset(torch.randn(2 * STEPS, 4)),
            checkpoints=Checkpoints(
                CheckpointFolder(folder, keep_last=99), group, asynchronous=options.pop("asynchronous", False)
            ),
            settings=Settings(total_epochs=1, batch_size=2, save_every_steps=4, **options),
            listeners=(self.heard,),
        )

    @property
    def saved(self) -> list[int]:
        return [int(name.split(".")[0].removeprefix("step-")) for name in checkpoints_in(self.folder)]

    @property
    def finite(self) -> bool:
        return all(bool(each.isfinite().all()) for each in self.model.state_dict().values())


@pytest.mark.parametrize(
    ("wrong", "message", "saved"),
    [
        (at(6, math.nan), "loss became nan at step 6 on rank 0; last finite checkpoint: step 4", [4]),
        (at(8, math.inf), "loss became inf at step 8 on rank 0; last finite checkpoint: step 4", [4]),
        (at(1, math.nan), "loss became nan at step 1 on rank 0; no checkpoint was saved", []),
        (
            at(30, math.nan),
            "loss became nan at step 30 on rank 0; last finite checkpoint: step 28",
            [4, 8, 12, 16, 20, 24, 28],
        ),
    ],
    ids=["between", "of the save", "first", "last"],
)
def test_a_loss_that_is_not_finite_ends_the_training_before_the_next_save(
    wrong: Spoil,
    message: str,
    saved: list[int],
    tmp_path: Path,
    group: Group,
) -> None:
    training = Training(group, tmp_path, wrong, asynchronous=saved == [4])
    with pytest.raises(NonFiniteError) as raised:
        training.loop.run()
    assert str(raised.value) == message
    assert training.saved == saved
    assert [what for _, what in training.heard.found] == [message.split(";", maxsplit=1)[0]]


def sqrt_of_zero(call: int, out: torch.Tensor) -> torch.Tensor:
    """A finite loss whose gradient is not."""
    return out + (out * 0).sqrt() if call == 8 else out


def test_a_gradient_that_is_not_finite_is_found_before_it_is_saved_although_the_loss_is_finite(
    group: Group, tmp_path: Path
) -> None:
    training = Training(group, tmp_path, sqrt_of_zero, log_every=100)
    with pytest.raises(NonFiniteError, match=r"became not finite at step 8; last finite checkpoint: step 4"):
        training.loop.run()
    assert training.saved == [4]
    logged = Training(group, tmp_path / "logged", sqrt_of_zero, log_every=8)
    with pytest.raises(NonFiniteError, match="the norm of the gradients became nan at step 8; last finite"):
        logged.loop.run()


def test_a_gradient_whose_square_overflows_in_adam_is_not_saved(group: Group, tmp_path: Path) -> None:
    training = Training(group, tmp_path, at(5, 1e18), log_every=100)
    with pytest.raises(NonFiniteError, match=r"exp_avg_sq of 0\.weight"):
        training.loop.run()
    assert training.saved == [4]


def test_steps_with_such_gradients_are_left_out_where_that_is_chosen(group: Group, tmp_path: Path) -> None:
    training = Training(group, tmp_path, at(6, math.nan), on_nan="skip")
    training.loop.run()
    assert training.finite, "BatchNorm's averages too"
    assert training.heard.found == [(6, "loss became nan at step 6 on rank 0")]
    assert all(math.isfinite(loss) for loss in training.heard.losses.values())
    assert training.saved[-1] == STEPS
    # As if the batch had not been there.
    without = Training(group, tmp_path / "again", sqrt_of_zero, on_nan=OnNan.SKIP, log_every=8)
    without.loop.run()
    assert without.finite
    assert without.heard.found == [(8, "the norm of the gradients became nan at step 8")]


def test_a_training_in_which_every_step_would_be_left_out_ends(group: Group, tmp_path: Path) -> None:
    training = Training(group, tmp_path, lambda call, out: out * math.nan if call > 5 else out, on_nan="skip")
    with pytest.raises(NonFiniteError, match=f"step 16 on rank 0; {MOST_LEFT_OUT} steps before it were left out"):
        training.loop.run()
    assert training.finite


def test_with_warn_the_training_goes_on_and_saves_nothing_that_is_not_finite(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(group, tmp_path, at(6, math.nan), on_nan="warn")
    training.loop.run()
    assert training.saved == [4]
    assert training.loop.position.step == STEPS
    assert caplog.text.count("loss became nan at step 6 on rank 0") == 1
    assert "no checkpoint at step 8: the state of the training is not finite" in caplog.text


def test_what_overflows_by_design_ends_no_training(group: Group, tmp_path: Path) -> None:
    training = Training(
        group, tmp_path, lambda _call, out: out.float() * 300, optimization=Optimization(precision="fp16"), log_every=1
    )
    training.model.register_buffer("mask", torch.full((2,), -math.inf))
    training.loop.run()
    assert training.loop._optimizing.scaler.get_scale() < 2**16, "gradients have overflowed"
    assert training.saved[-1] == STEPS


def test_the_rank_is_named_by_all_ranks_and_with_skip_all_have_the_same_model(tmp_path: Path) -> None:
    ranks = plain(2, PROGRAM, str(tmp_path))
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    for rank in ranks:
        assert "STOP loss became nan at step 7 on rank 1; last finite checkpoint: step 4" in rank.output
        assert "WARN 20" in rank.output
        assert "SKIP 20 FINITE" in rank.output
    assert len({rank.output.partition("DIGEST ")[2].split()[0] for rank in ranks}) == 1
    assert checkpoints_in(tmp_path / "stop") == ["step-000000004.attempt-0"]
