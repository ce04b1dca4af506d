"""Mixed precision, accumulation, clipping and compression, each against the plain training that it must agree with."""

import json
import math
import re
from pathlib import Path

import pytest
from training import Training, together, whole

from ddpjob_trainer.loop.optimization import Optimization

PROGRAM = str(Path(__file__).with_name("programs") / "optimizing.py")
# Name to batch size and options. With two processes, 512 samples in batches of 16 are 16 steps an epoch.
OF_TWO: dict[str, tuple[int, dict[str, object]]] = {
    "plain": (16, {}),
    "of 509 samples": (16, {"samples": 509}),
    "of 513 samples": (16, {"samples": 513}),
    "several batches": (4, {"accumulate": 4}),
    "weighted": (16, {"weighted": 1}),
    "weighted of 513 samples": (16, {"weighted": 1, "samples": 513}),
    "weighted, several batches": (4, {"weighted": 1, "accumulate": 4}),
    # So heavy that no sum is in range before it is divided; and so small that no step is left out.
    "heavy fp16": (16, {"weighted": 2**20, "smaller": 2**6, "precision": "fp16"}),
    "of two kinds": (16, {"weighted": 1, "wrong": "kind"}),
    "a negative weight": (16, {"weighted": 1, "wrong": "weight"}),
    "options of DDP": (16, {"broadcast_buffers": False, "bucket_cap_mb": 0.001}),
    "clipped": (16, {"clip_norm": 1e-6}),
    "bf16": (16, {"precision": "bf16"}),
    "fp16": (8, {"precision": "fp16", "accumulate": 2}),
    "fp16 on the wire": (16, {"compression": "fp16"}),
    "powersgd": (16, {"compression": "powersgd", "static_graph": True, "gradient_as_bucket_view": True}),
}
OF_ONE: dict[str, tuple[int, dict[str, object]]] = {
    "large batches": (32, {}),
    "several batches": (8, {"accumulate": 4}),
    "weighted": (32, {"weighted": 1}),
    "weighted of 513 samples": (32, {"weighted": 1, "samples": 513}),
    "of 509 samples": (32, {"samples": 509}),
    "of 513 samples": (32, {"samples": 513}),
    "of 509 samples in several batches": (8, {"samples": 509, "accumulate": 4}),
    "a rest": (48, {"accumulate": 4}),
}


def program(trainings: dict[str, tuple[int, dict[str, object]]]) -> tuple[str, str]:
    return PROGRAM, json.dumps([[name, *how] for name, how in trainings.items()])


def one(**options: object) -> tuple[str, str]:
    return program({"one": (16, options)})


def trained(processes: int, trainings: dict[str, tuple[int, dict[str, object]]], nodes: int = 1) -> dict[str, Training]:
    """Name to what the training printed."""
    said = re.split(r"^== (.*)\n", whole(processes, *program(trainings), nodes=nodes).output, flags=re.MULTILINE)
    return {name: Training(0, output) for name, output in zip(said[1::2], said[2::2], strict=True)}


@pytest.fixture(scope="module")
def of_two() -> dict[str, Training]:
    return trained(2, OF_TWO)


@pytest.fixture(scope="module")
def of_one() -> dict[str, Training]:
    return trained(1, OF_ONE)


def losses(training: Training) -> list[float]:
    return [float(loss) for _, loss in sorted(training.losses.items())]


def test_gradients_of_several_batches_make_the_step_of_one_large_batch(of_two: dict[str, Training]) -> None:
    assert len(losses(of_two["plain"])) == 32
    assert losses(of_two["several batches"]) == pytest.approx(losses(of_two["plain"]), abs=2e-6)
    assert "[CPU0] Epoch 1 | Batchsize: 4 | Steps: 16" in of_two["several batches"].output


def test_one_process_with_the_same_global_batch_has_the_losses_of_two(
    of_one: dict[str, Training], of_two: dict[str, Training]
) -> None:
    for name in ("large batches", "several batches"):
        assert losses(of_one[name]) == pytest.approx(losses(of_two["plain"]), abs=2e-6), name


def test_two_nodes_of_one_process_have_the_losses_of_one_node_of_two(of_two: dict[str, Training]) -> None:
    (of_nodes,) = trained(2, {"plain": OF_TWO["plain"]}, nodes=2).values()
    assert losses(of_nodes) == pytest.approx(losses(of_two["plain"]), abs=2e-6)


def test_they_agree_where_the_samples_are_not_divisible_too(
    of_one: dict[str, Training], of_two: dict[str, Training]
) -> None:
    # In the last step of an epoch the two have 15 and 14 samples, or one sample for both.
    for name, like in {name: name.partition(" in ")[0] for name in of_one if name.startswith("of ")}.items():
        assert losses(of_one[name]) == pytest.approx(losses(of_two[like]), abs=2e-6), name


def test_a_sum_is_divided_by_the_weights_of_all_batches_and_ranks(
    of_one: dict[str, Training], of_two: dict[str, Training]
) -> None:
    expected = losses(of_one["weighted"])
    assert losses(of_two["weighted"]) == pytest.approx(expected, abs=2e-6)
    assert losses(of_two["weighted, several batches"]) == pytest.approx(expected, abs=2e-6)
    assert [64 * loss for loss in losses(of_two["heavy fp16"])] == pytest.approx(expected, abs=0.01)
    # In the last step of an epoch one sample is all there is, and one rank repeats it.
    assert losses(of_two["weighted of 513 samples"]) == pytest.approx(
        losses(of_one["weighted of 513 samples"]), abs=2e-6
    )
    assert expected != losses(of_one["large batches"])


def test_ranks_with_losses_of_two_kinds_and_weights_that_are_none_are_named_by_all(of_two: dict[str, Training]) -> None:
    # What rank 1 says comes after all of rank 0.
    output = "".join(training.output for training in of_two.values())
    mean, weighted = "a mean, which is one tensor", "a tuple of a sum and its weight"
    for message in (
        f"the loss is {mean}, on rank 1, and {weighted}, on rank 0: return one kind",
        "the weight of a batch is negative, infinite or NaN on one of the ranks",
    ):
        assert sorted(re.findall(rf"\[rank (\d)\] refused: {message}", output)) == ["0", "1"], output


def test_ddp_has_the_options_of_the_exchange(of_two: dict[str, Training]) -> None:
    assert losses(of_two["options of DDP"]) == pytest.approx(losses(of_two["plain"]), abs=2e-6)


def test_batch_norm_of_all_ranks_is_refused_on_cpus() -> None:
    training = together(1, *one(sync_batch_norm=True))
    assert "torch's SyncBatchNorm computes on GPUs only" in training.output


def test_a_last_step_of_fewer_batches_is_one_too(of_one: dict[str, Training]) -> None:
    # 512 samples in batches of 48 are 11, in steps of 4, 4 and 3 batches.
    assert len(losses(of_one["a rest"])) == 6
    assert "[CPU0] Epoch 2 | Batchsize: 48 | Steps: 3" in of_one["a rest"].output


@pytest.mark.parametrize(
    ("name", "tolerance", "computed"),
    [
        ("bf16", 0.02, "torch.bfloat16"),
        ("fp16", 0.01, "torch.float16"),
        ("fp16 on the wire", 0.01, "torch.float32"),
        ("powersgd", 0.1, "torch.float32"),
    ],
)
def test_less_precision_changes_little(of_two: dict[str, Training], name: str, tolerance: float, computed: str) -> None:
    assert set(re.findall(r"computed in (\S+)", of_two[name].output)) == {computed}
    found, plain = losses(of_two[name]), losses(of_two["plain"])
    assert found == pytest.approx(plain, abs=tolerance)
    assert found != plain, "it had an effect"


def test_clipped_gradients_make_small_steps(of_two: dict[str, Training]) -> None:
    clipped, plain = losses(of_two["clipped"]), losses(of_two["plain"])
    assert clipped[0] == plain[0]
    # An epoch has the same samples again in other batches: parameters hardly change.
    assert math.isclose(sum(clipped[:16]), sum(clipped[16:]), rel_tol=1e-3)
    assert sum(plain[16:]) < sum(plain[:16]) / 2


def test_the_scale_of_the_loss_goes_on_after_a_resume(tmp_path: Path) -> None:
    folder = {"DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid")}
    undisturbed = whole(1, *one(precision="fp16"), variables={"EPOCHS": "2"})
    first = whole(1, *one(precision="fp16"), variables={**folder, "EPOCHS": "1"})
    second = whole(1, *one(precision="fp16"), variables={**folder, "EPOCHS": "2"})
    assert {**first.losses, **second.losses} == undisturbed.losses


def test_a_compression_that_this_torch_does_not_have_for_the_backend_is_named() -> None:
    training = together(1, *one(compression="bf16"))
    # Newer versions of torch have it for gloo too.
    assert (
        training.code == 0
        or "has no compression=bf16 for the backend gloo: choose another compression" in training.output
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accumulate": 0}, "Optimization.accumulate must be at least 1"),
        ({"clip_norm": 0}, "clip_norm must be above 0"),
        ({"bucket_cap_mb": 0}, "bucket_cap_mb must be above 0"),
        ({"precision": "bfloat16"}, "Optimization.precision must be one of fp32, bf16, fp16, not 'bfloat16'"),
        ({"compression": "float16"}, "Optimization.compression must be one of fp16, bf16, powersgd, not 'float16'"),
        ({"accumulate": 2, "static_graph": True}, "static_graph with accumulate above 1 fails"),
        ({"precision": "fp16", "compression": "powersgd"}, "fp16 with compression powersgd learns nothing"),
    ],
)
def test_options_that_cannot_work_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Optimization(**options)  # type: ignore[arg-type]
