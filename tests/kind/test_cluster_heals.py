"""A cluster whose nodes were stopped, noticed and made again; on a cluster of its own, since the others are at work."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hack.cache import ROOT
from hack.cluster.engine import Engine, choose_engine
from hack.cluster.kind import LOG

NAME = "ddpjob-heal"

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="takes two clusters' time: make test-full"),
    pytest.mark.skipif(os.environ.get("USE_EXISTING_CLUSTER") == "1", reason="makes clusters of its own"),
    pytest.mark.timeout(600),
]


def make_cluster(*arguments: str) -> str:
    """What `make cluster` prints."""
    command = [sys.executable, "-m", "hack.cluster.kind", *arguments]
    environment = {**os.environ, "DDPJOB_CLUSTER_NAME": NAME}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def engine() -> Iterator[Engine]:
    yield choose_engine(LOG)
    make_cluster("--delete")


def test_a_cluster_whose_nodes_were_stopped_is_made_again_and_a_well_one_is_left_alone(engine: Engine) -> None:
    assert f"cluster: {NAME} is up" in make_cluster()
    second = make_cluster()
    assert "creating it again" not in second
    assert "kind create" not in second
    nodes = (engine.output("ps", "-q", "--filter", f"label=io.x-k8s.kind.cluster={NAME}") or "").split()
    assert len(nodes) == len(["control plane", "worker", "worker"])
    assert engine.output("kill", *nodes) is not None
    healed = make_cluster()
    assert f"{NAME} cannot be used (stopped: {NAME}-control-plane, {NAME}-worker, {NAME}-worker2)" in healed
    assert f"cluster: {NAME} is up" in healed
