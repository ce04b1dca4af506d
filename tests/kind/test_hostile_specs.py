"""Jobs that cost far more than they are worth: each is refused or fails, with its field, and no other job notices."""

import json
import re
from typing import Any

import pytest
from jobs import TORCH_IMAGE, ddpjob
from kubectl import Kubectl, KubectlError
from operators import operator_pods

TRAINER = {"image": TORCH_IMAGE, "command": ["true"]}
MANY_LISTS: list[list[Any]] = [[] for _ in range(100_000)]
DIGITS = "9" * 8000 + "x"


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": 10_000, "procsPerNode": 256}, r"spec\.nodes x spec\.procsPerNode must be at most 100,000"),
        ({"trainer": {**TRAINER, "resources": {"limits": {"cpu": DIGITS}}}}, r"spec\.trainer\.resources\.limits"),
    ],
)
def test_what_a_rule_of_the_api_can_tell_is_refused_by_the_api_server(
    kubectl: Kubectl, change: dict[str, Any], said: str
) -> None:
    job = ddpjob("hostile", trainer=TRAINER)
    job["spec"].update(change)
    with pytest.raises(KubectlError) as refused:
        kubectl.create(job)
    assert re.search(said, str(refused.value))


def test_jobs_that_would_take_the_operators_memory_and_time_fail_with_their_field_and_another_runs(
    kubectl: Kubectl,
) -> None:
    before = operator_pods()
    container = {"name": "trainer", "resources": {"limits": {"cpu": DIGITS}}}
    templates: dict[str, dict[str, Any]] = {
        "lists": {"spec": {"x": MANY_LISTS}},
        "deep": {"spec": {"x": deep(600)}},
        "digits": {"spec": {"containers": [container]}},
        "text": {"spec": {"x": "y" * 1_000_000}},
    }
    for name, template in templates.items():
        job = ddpjob(name, nodes=80, trainer=TRAINER, template=template)
        # As YAML each would take seconds to write and to read.
        kubectl("create", "-f", "-", stdin=json.dumps(job))
    kubectl.apply(ddpjob("neighbour", nodes=1, trainer=TRAINER))
    kubectl.wait_for_phase("neighbour", "Succeeded")
    for name in templates:
        status = kubectl.wait_for_phase(name, "Failed", timeout=60)["status"]
        failed = next(condition for condition in status["conditions"] if condition["type"] == "Failed")
        assert failed["reason"] == "InvalidSpec", failed
        assert "spec.template" in failed["message"], failed
        assert len(failed["message"]) < 1000
    assert operator_pods() == before, "the operator did not survive them"
