"""Mixed precision, accumulation, clipping and compression, each against the plain training that it must agree with."""

import json
import math
from pathlib import Path

import pytest
from training import Training, run, succeed, torchrun

PROGRAM = str(Path(__file__).with_name("programs") / "optimizing.py")


def trained(processes: int, batch_size: int, **options: object) -> Training:
    return succeed(torchrun(processes, PROGRAM, json.dumps(options), str(batch_size)))


def losses(training: Training) -> list[float]:
    return [float(loss) for _, loss in sorted(training.losses.items())]


@pytest.fixture(scope="module")
def plain() -> list[float]:
    """Two processes with batches of 16: 16 steps an epoch."""
    return losses(trained(2, 16))


def test_gradients_of_several_batches_make_the_step_of_one_large_batch(plain: list[float]) -> None:
    split = trained(2, 4, accumulate=4)
    assert losses(split) == pytest.approx(plain, abs=2e-6)
    assert "[CPU0] Epoch 1 | Batchsize: 4 | Steps: 16" in split.output


def test_one_process_with_the_same_global_batch_has_the_losses_of_two(plain: list[float]) -> None:
    assert losses(trained(1, 32)) == pytest.approx(plain, abs=2e-6)
    assert losses(trained(1, 8, accumulate=4)) == pytest.approx(plain, abs=2e-6)


def test_a_last_step_of_fewer_batches_is_one_too() -> None:
    # 512 samples in batches of 48 are 11, in steps of 4, 4 and 3 batches.
    training = trained(1, 48, accumulate=4)
    assert len(losses(training)) == 6
    assert "[CPU0] Epoch 2 | Batchsize: 48 | Steps: 3" in training.output


@pytest.mark.parametrize(
    ("options", "tolerance", "computed"),
    [
        ({"precision": "bf16"}, 0.02, "torch.bfloat16"),
        ({"precision": "fp16", "accumulate": 2}, 0.01, "torch.float16"),
        ({"compression": "fp16"}, 0.01, "torch.float32"),
        ({"compression": "powersgd", "static_graph": True, "gradient_as_bucket_view": True}, 0.1, "torch.float32"),
    ],
    ids=["bf16", "fp16", "fp16 on the wire", "powersgd"],
)
def test_less_precision_changes_little(
    plain: list[float], options: dict[str, object], tolerance: float, computed: str
) -> None:
    training = trained(2, 16 // int(str(options.get("accumulate", 1))), **options)
    assert f"computed in {computed}" in training.output
    found = losses(training)
    assert found == pytest.approx(plain, abs=tolerance)
    assert found != plain, "it had an effect"


def test_clipped_gradients_make_small_steps(plain: list[float]) -> None:
    clipped = losses(trained(2, 16, clip_norm=1e-6))
    assert clipped[0] == plain[0]
    # An epoch has the same batches' losses again, up to their order: parameters hardly change.
    assert math.isclose(sum(clipped[:16]), sum(clipped[16:]), rel_tol=1e-3)
    assert sum(plain[16:]) < sum(plain[:16]) / 2


def test_the_scale_of_the_loss_goes_on_after_a_resume(tmp_path: Path) -> None:
    folder = {"DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid")}
    command = torchrun(1, PROGRAM, json.dumps({"precision": "fp16"}), "16")
    whole = succeed(command, {"EPOCHS": "2"})
    first = succeed(command, {**folder, "EPOCHS": "1"})
    second = succeed(command, {**folder, "EPOCHS": "2"})
    assert {**first.losses, **second.losses} == whole.losses


def test_a_compression_that_this_torch_does_not_have_for_the_backend_is_named() -> None:
    training = run(torchrun(1, PROGRAM, json.dumps({"compression": "bf16"}), "16"))
    # Newer versions of torch have it for gloo too.
    assert training.code == 0 or "has no compression=bf16 for the backend gloo: choose another one" in training.output


@pytest.mark.parametrize(
    ("options", "said"),
    [({"accumulate": 0}, "accumulate must be at least 1"), ({"clip_norm": 0}, "clip_norm must be above 0")],
)
def test_options_that_cannot_work_are_named(options: dict[str, object], said: str) -> None:
    assert said in run(torchrun(1, PROGRAM, json.dumps(options), "16")).output
