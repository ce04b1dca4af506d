"""The chart with trainings that run: installed, upgraded, rolled back and removed, while they notice nothing."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from earlier_operator import TAG, have_earlier_image
from jobs import digits
from kubectl import Kubectl, wait_until
from steady import EPOCHS, STEPS_PER_EPOCH, losses, train_longer

from ddpjob_core.api.constants import GROUP
from hack.cache import ROOT
from hack.cluster.deploy import DEPLOYMENT, NAMESPACE, TESTED, deploy
from tests.earlier import unpack_earlier

CHART = ROOT / "manifests/chart/ddpjob"
HELMS = tuple(filter(None, os.environ.get("DDPJOB_HELM", "").split(os.pathsep)))
ONCE: dict[str, Any] = {each: {"install": False} for each in ("crd", "admissionPolicy", "priorityClass")}
"""What a cluster has once, which these releases leave out."""
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


@dataclass(frozen=True)
class Helm:
    """Helm in the operator's namespace."""

    program: str
    home: Path

    def __call__(self, *arguments: str, **values: Any) -> str:
        places = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        command = [self.program, *arguments, "--namespace", NAMESPACE, *(["--values", "-"] if values else [])]
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


@pytest.mark.parametrize("helm", [pytest.param(each, id=Path(each).name) for each in HELMS])
def test_a_training_goes_on_while_the_chart_is_upgraded_rolled_back_removed_and_installed_again(
    helm: str, without_operator: Kubectl, tmp_path: Path
) -> None:
    kubectl, run = without_operator, Helm(helm, tmp_path)
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


@pytest.mark.pod_security("privileged")
def test_a_training_of_an_earlier_version_goes_on_under_this_one_and_after_a_rollback(
    without_operator: Kubectl, tmp_path: Path
) -> None:
    kubectl, run = without_operator, Helm(HELMS[-1], tmp_path)
    (tmp_path / "earlier").mkdir()
    sources = unpack_earlier(tmp_path / "earlier")
    have_earlier_image(sources)
    run(
        "install", "ddpjob", str(sources / "manifests/chart/ddpjob"), "--wait", "--create-namespace", image={"tag": TAG}
    )
    epoch = train_longer(kubectl, LONGER)["leaderEpoch"]
    assert "podSecurity" not in kubectl.job("digits")["status"], "the earlier version does not know this field"
    pods = {pod["metadata"]["uid"] for pod in kubectl.list("pods")}

    run("upgrade", "ddpjob", str(CHART), "--wait", image={"tag": "dev"})
    epoch = serves(kubectl, epoch)
    run("rollback", "ddpjob", "1", "--wait")
    epoch = serves(kubectl, epoch)
    run("upgrade", "ddpjob", str(CHART), "--wait", image={"tag": "dev"})
    serves(kubectl, epoch)
    status = kubectl.wait_for_phase("digits", "Succeeded", timeout=300)["status"]
    assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["ignored"]) == (0, 0, 0)
    assert {pod["metadata"]["uid"] for pod in kubectl.list("pods")} == pods
    assert len(losses(kubectl.logs("digits-a0-0"))) == LONGER * EPOCHS * STEPS_PER_EPOCH

    assert "ddpjobs.ddpjob.dev" in run("uninstall", "ddpjob", "--wait")
    assert kubectl.phase("digits") == "Succeeded"


def serves(kubectl: Kubectl, epoch: int) -> int:
    """The term of the operator that leads since, once it has written to the running job."""

    def look() -> int | None:
        status = kubectl.job("digits")["status"]
        assert status["phase"] == "Running", kubectl.story("digits")
        return int(status["leaderEpoch"]) if status["leaderEpoch"] > epoch else None

    return wait_until(look, "the next operator to serve the job", 120, lambda: kubectl.story("digits"))


def test_operators_of_some_namespaces_train_there_and_leave_all_others_alone(
    without_operator: Kubectl, elsewhere: Kubectl, tmp_path: Path
) -> None:
    """Each has Roles in its own namespace alone, which Kubernetes itself holds it to."""
    run = Helm(HELMS[-1], tmp_path)
    run("install", "ddpjob-cluster", str(CHART), "--create-namespace", operator={"install": False})
    served = {"team-a": without_operator, "team-b": elsewhere}
    for release, kubectl in served.items():
        run("install", release, str(CHART), "--wait", namespaces=[kubectl.namespace], **ONCE)
    nobodys = Kubectl(f"{without_operator.namespace}-nobodys")
    nobodys("create", "namespace", nobodys.namespace)
    try:
        for kubectl in (nobodys, *served.values()):
            kubectl.apply(digits("digits", epochs=2))
        for kubectl in served.values():
            kubectl.wait_for_phase("digits", "Succeeded")
            assert kubectl.job("digits")["status"]["restarts"]["counted"] == 0
        assert_untouched(nobodys, "digits")

        # What is removed of one is nothing of the other's.
        run("uninstall", "team-a", "--wait")
        for kubectl in served.values():
            kubectl.apply(digits("next", epochs=2))
        elsewhere.wait_for_phase("next", "Succeeded")
        assert_untouched(without_operator, "next")
        assert_untouched(nobodys, "digits")
    finally:
        nobodys("delete", "namespace", nobodys.namespace, "--wait=false")
        run("uninstall", "team-b", "ddpjob-cluster")


def assert_untouched(kubectl: Kubectl, name: str) -> None:
    """No operator has written anything for a job: what its status has is the API server's default."""
    mine = f"{GROUP}/job={name}"
    assert [each for kind in ("pods", "services", "configmaps") for each in kubectl.list(kind, mine)] == []
    assert "observedGeneration" not in kubectl.job(name).get("status", {})


def replicas() -> int:
    found = Kubectl(NAMESPACE).get("deployment", DEPLOYMENT)
    assert found is not None
    return int(found["status"]["readyReplicas"])
