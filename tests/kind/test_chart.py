"""The chart with trainings that run: installed, upgraded, rolled back and removed, while they notice nothing."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubectl import Kubectl, wait_until
from steady import EPOCHS, STEPS_PER_EPOCH, losses, train_longer

from hack.cache import ROOT
from hack.cluster.deploy import DEPLOYMENT, NAMESPACE, TESTED, deploy

CHART = ROOT / "manifests/chart/ddpjob"
HELMS = tuple(filter(None, os.environ.get("DDPJOB_HELM", "").split(os.pathsep)))
LONGER = 6
"""So many times as many epochs as usual: it trains until all has been done."""

pytestmark = [
    pytest.mark.alone,
    pytest.mark.full,
    pytest.mark.skipif(not HELMS, reason="DDPJOB_HELM does not name a program: make test-full builds them"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def without_operator(kubectl: Kubectl) -> Iterator[Kubectl]:
    """A cluster on which nothing of ddpjob is installed."""
    system = Kubectl(NAMESPACE)
    system("delete", "crd", "ddpjobs.ddpjob.dev", "--ignore-not-found", timeout=180)
    system("delete", "-k", str(ROOT / TESTED), "--ignore-not-found", timeout=180)
    try:
        yield kubectl
    finally:
        system("delete", "namespace", NAMESPACE, "--ignore-not-found", timeout=180)
        deploy(overlay=TESTED)


@pytest.mark.parametrize("helm", [pytest.param(each, id=Path(each).name) for each in HELMS])
def test_a_training_goes_on_while_the_chart_is_upgraded_rolled_back_removed_and_installed_again(
    helm: str, without_operator: Kubectl, tmp_path: Path
) -> None:
    kubectl = without_operator

    def run(*arguments: str, **values: Any) -> str:
        places = {f"HELM_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        command = [helm, *arguments, "--namespace", NAMESPACE, *(["--values", "-"] if values else [])]
        done = subprocess.run(
            command,
            input=json.dumps(values),
            env={**os.environ, **places},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    place = ("ddpjob", str(CHART), "--wait")
    run("install", *place, "--create-namespace")
    epoch = train_longer(kubectl, LONGER)["leaderEpoch"]
    pods = {pod["metadata"]["uid"] for pod in kubectl.list("pods")}

    run("upgrade", *place, replicas=2)
    assert replicas() == 2
    run("rollback", "ddpjob", "1", "--wait")
    assert replicas() == 1
    assert "ddpjobs.ddpjob.dev" in run("uninstall", "ddpjob", "--wait")
    made = len(losses(kubectl.logs("digits-a0-0")))
    wait_until(lambda: len(losses(kubectl.logs("digits-a0-0"))) > made, "the training to go on without an operator")

    # The release that comes next takes over the definition that was kept, and the job with it.
    run("install", *place)
    status = wait_until(
        lambda: next((each for each in [kubectl.job("digits")["status"]] if each["leaderEpoch"] > epoch), None),
        "the new operator to serve the job",
    )
    assert status["phase"] == "Running", kubectl.story("digits")
    status = kubectl.wait_for_phase("digits", "Succeeded", timeout=300)["status"]
    assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["ignored"]) == (0, 0, 0)
    assert {pod["metadata"]["uid"] for pod in kubectl.list("pods")} == pods
    assert len(losses(kubectl.logs("digits-a0-0"))) == LONGER * EPOCHS * STEPS_PER_EPOCH

    # Jobs go where that is asked for.
    assert "DELETES" in run("upgrade", *place, crd={"keep": False})
    run("uninstall", "ddpjob", "--wait")
    wait_until(lambda: not kubectl.list("pods"), "the pods of the job to go with it")
    assert "ddpjobs.ddpjob.dev" not in kubectl("get", "crd", "-o", "name")


def replicas() -> int:
    found = Kubectl(NAMESPACE).get("deployment", DEPLOYMENT)
    assert found is not None
    return int(found["status"]["readyReplicas"])
