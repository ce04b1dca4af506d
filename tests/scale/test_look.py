"""What a look at a large job takes: one at a job of the most nodes must not hold up all others."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from ddpjob_core.api import DDPJobSpec, DDPJobStatus
from ddpjob_core.api.constants import MAX_NODES
from ddpjob_core.api.names import pod_name
from ddpjob_core.decide import decide
from ddpjob_core.observations.observed import JobRecord, Observed, PodRecord, Running

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
FEW: Final = 1_000
LOOKS: Final = 9
FIGURES: Final = Path(__file__).resolve().parents[2] / ".build/results/scale-look.json"


def looked_at(nodes: int, pod: PodRecord) -> Observed:
    """A job all of whose pods are like this one, and whose status says so."""
    spec = DDPJobSpec.model_validate({"nodes": nodes, "procsPerNode": 1, "trainer": {"image": "i", "script": "t.py"}})
    names = (pod_name("digits", 0, ordinal, nodes) for ordinal in range(nodes))
    pods = tuple(replace(pod, name=name, uid=f"uid-{name}", ordinal=number) for number, name in enumerate(names))
    status = DDPJobStatus(pods_created=True, start_time=NOW, attempt_start_time=NOW)
    job = JobRecord("default", "digits", "job-uid", "1", 1, deleting=False, spec=spec, status=status)
    observed = Observed(job=job, now=NOW, pods=pods, taken_over=NOW)
    shown = decide(observed).status
    assert shown is not None
    return replace(observed, job=replace(job, status=shown))


def seconds_of_a_look(observed: Observed) -> float:
    """Seconds of CPU, of the fastest of several."""
    best = float("inf")
    for _ in range(LOOKS):
        begun = time.process_time()
        plan = decide(observed)
        best = min(best, time.process_time() - begun)
        assert plan.status is None, "nothing has changed"
    return best


PENDING: Final = PodRecord("default", "", "", "1", "job-uid", "digits", 0, 0, "Pending", created=NOW)
RUNNING: Final = replace(
    PENDING, phase="Running", scheduled=True, ready=True, node_name="n", pod_ip="10.0.0.1", trainer=Running(NOW)
)


@pytest.mark.parametrize("pod", [RUNNING, PENDING], ids=["running", "pending"])
def test_a_look_takes_a_time_in_proportion_to_the_nodes(pod: PodRecord) -> None:
    few, many = (seconds_of_a_look(looked_at(nodes, pod)) for nodes in (FEW, MAX_NODES))
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures = {f"{FEW:,} nodes, ms": round(few * 1000, 1), f"{MAX_NODES:,} nodes, ms": round(many * 1000, 1)}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps({**known, pod.phase: figures}, indent=1))
    assert many / few < 2.5 * MAX_NODES / FEW, figures
