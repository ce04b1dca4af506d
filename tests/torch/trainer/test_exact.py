"""A resume with the same number of ranks is bit for bit the training without an interruption, whatever the number."""

import json
import re
from pathlib import Path

import pytest
from training import whole

PROGRAM = str(Path(__file__).with_name("programs") / "exact.py")
FEW: dict[str, dict[str, object]] = {"plain": {}, "several batches": {"accumulate": 2}}
ALL: dict[str, dict[str, object]] = {
    **FEW,
    "views of buckets": {"gradient_as_bucket_view": True},
    "unused parameters": {"find_unused_parameters": True},
    "sparse gradients": {"sparse": True},
    "fp16 on the wire": {"compression": "fp16"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16", "accumulate": 2},
    "clipped": {"clip_norm": 0.1},
}
STATIC: dict[str, dict[str, object]] = {"static graph": {"static_graph": True}}


@pytest.mark.parametrize(
    ("ranks", "trainings"),
    [
        pytest.param(3, FEW, id="three ranks"),
        pytest.param(1, ALL | STATIC, id="one rank", marks=pytest.mark.full),
        pytest.param(2, ALL | STATIC, id="two ranks", marks=pytest.mark.full),
        pytest.param(3, ALL, id="three ranks with any option", marks=pytest.mark.full),
        pytest.param(4, ALL, id="four ranks", marks=pytest.mark.full),
    ],
)
def test_a_resumed_training_has_the_same_losses_and_parameters(
    ranks: int, trainings: dict[str, dict[str, object]]
) -> None:
    output = whole(ranks, PROGRAM, json.dumps(list(trainings.items()))).output
    found = re.findall(r"^== (.*), interrupted after (.*): differs (.*), parameters same (.*)$", output, re.MULTILINE)
    assert len(found) == 2 * len(trainings), output
    assert [each for each in found if each[2:] != ("[]", "True")] == []
