"""Deploying the operator, with a kubectl that takes note of who calls it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hack.cluster.deploy import deploy

# Fails where it runs twice at once. Of a definition it first shows what the API server does of one that is new.
KUBECTL = f"""#!{sys.executable}
import json, os, pathlib, sys, time
os.mkdir(os.environ["BUSY"])
time.sleep(0.02)
os.rmdir(os.environ["BUSY"])
log = pathlib.Path(os.environ["BUSY"] + ".log")
with log.open("a") as file:
    print(sys.argv[1], file=file)
if sys.argv[1] == "get":
    asked = log.read_text().split().count("get")
    conditions = [None, [{{"type": "Established", "status": "False"}}], [{{"type": "Established", "status": "True"}}]]
    print(json.dumps({{"status": {{"conditions": conditions[min(asked, 3) - 1]}}}}))
"""


@pytest.fixture
def verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kubectl notes each verb that it is called with."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(kubectl))
    monkeypatch.setenv("BUSY", str(tmp_path / "busy"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "busy.log"


@pytest.mark.usefixtures("verbs")
def test_of_two_that_deploy_at_once_one_waits_for_the_other() -> None:
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(deploy) for _ in range(2)]:
            done.result()


def test_a_definition_without_conditions_is_waited_for_until_it_is_established(verbs: Path) -> None:
    deploy()
    assert verbs.read_text().split()[:5] == ["apply", "get", "get", "get", "apply"]
