"""Deploy the operator of this tree on the cluster that KUBECONFIG names, as the README tells a user to."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from hack.cache import ROOT, only_one
from hack.console import say

NAMESPACE: Final = "ddpjob-system"
DEPLOYMENT: Final = "ddpjob-operator"
TESTED: Final = "tests/kind/operator"
"""The overlay of the operator that the tests on kind have."""
_BUILD_ANNOTATION: Final = "ddpjob.dev/build"
_CRD: Final = "ddpjobs.ddpjob.dev"
_ESTABLISHED_WITHIN_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2
_INPUTS: Final = ("operator", "images/operator", "requirements.lock", "pyproject.toml")


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl and return what it printed.

    Raises:
        SystemExit: kubectl failed; its own words have been shown.
    """
    command = [os.environ.get("KUBECTL", "kubectl"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def build_of(root: Path) -> str:
    """A digest of everything that the operator's image is made of."""
    digest = hashlib.sha256()
    for name in _INPUTS:
        path = root / name
        for file in sorted([path] if path.is_file() else path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file):
                digest.update(str(file.relative_to(root)).encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _wait_until_established() -> None:
    """Wait until the API server serves DDPJobs.

    Not by `kubectl wait`, which ends with an error where it looks before the new definition has any condition.

    Raises:
        SystemExit: the definition is not accepted within a minute; its conditions say why.
    """
    deadline = time.monotonic() + _ESTABLISHED_WITHIN_SECONDS
    while True:
        status = json.loads(kubectl("get", "crd", _CRD, "--output=json")).get("status") or {}
        conditions = status.get("conditions") or []
        if any((each["type"], each["status"]) == ("Established", "True") for each in conditions):
            return
        if time.monotonic() > deadline:
            sys.exit(f"{_CRD} is not served after {_ESTABLISHED_WITHIN_SECONDS:.0f} s: {json.dumps(conditions)}")
        time.sleep(_POLL_SECONDS)


def deploy(root: Path = ROOT, overlay: str = "manifests/base") -> None:
    """Apply the API and the operator, and wait until it serves. Does nothing where both are there and current.

    The image's tag does not change with its contents, so the pod template carries their digest: an operator of an
    older tree is replaced.
    """
    # At the same time, two workers of pytest on a new cluster would both find an object missing and create it.
    with only_one("operator", say):
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(root / "manifests/crd/ddpjobs.yaml"))
        _wait_until_established()
        kubectl("apply", "-k", str(root / overlay))
        patch = {"spec": {"template": {"metadata": {"annotations": {_BUILD_ANNOTATION: build_of(root)}}}}}
        image = os.environ.get("DDPJOB_OPERATOR_IMAGE")
        if image:
            # Pushed to a registry, for a cluster that is not ours.
            kubectl("-n", NAMESPACE, "set", "image", f"deployment/{DEPLOYMENT}", f"operator={image}")
        kubectl("-n", NAMESPACE, "patch", "deployment", DEPLOYMENT, "--type=merge", "-p", json.dumps(patch))
        kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{DEPLOYMENT}", "--timeout=120s")


if __name__ == "__main__":
    deploy()
    print(f"operator: deployed in namespace {NAMESPACE}")
