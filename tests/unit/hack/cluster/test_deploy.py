"""Deploying the operator, with a kubectl that takes note of who calls it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hack.cluster.deploy import deploy

# Fails where it runs twice at once.
ALONE = f"""#!{sys.executable}
import os, time
os.mkdir(os.environ["BUSY"])
time.sleep(0.02)
os.rmdir(os.environ["BUSY"])
"""


def test_of_two_that_deploy_at_once_one_waits_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(ALONE)
    kubectl.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(kubectl))
    monkeypatch.setenv("BUSY", str(tmp_path / "busy"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(deploy) for _ in range(2)]:
            done.result()
