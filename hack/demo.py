"""`make demo`: apply a DDPJob that trains on real data, show it live, and end with suggestions for what to try next."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from hack.cache import ROOT
from hack.cluster.deploy import deploy, kubectl

MANIFEST: Final = ROOT / "manifests/examples/digits.yaml"
JOB: Final = "digits"
IMAGE: Final = "ddpjob-trainer:cpu"
DEADLINE_SECONDS: Final = 300.0
LOOK_EVERY_SECONDS: Final = 1.0
MANAGER: Final = "ddpjob-demo"


def say(text: str = "") -> None:
    """Print without buffering: a person watches."""
    print(text, flush=True)


def look() -> dict[str, Any]:
    """The job as it is now."""
    found: dict[str, Any] = json.loads(kubectl("get", "ddpjob", JOB, "-o", "json"))
    return found


def is_of_the_demo(job: dict[str, Any]) -> bool:
    """Whether nobody but an earlier demonstration has written a job; the operator writes its status only."""
    fields = job["metadata"].get("managedFields", [])
    return {entry["manager"] for entry in fields if entry.get("subresource") != "status"} == {MANAGER}


def not_ours(job: dict[str, Any]) -> str:
    """What to do where the name is taken by a job of another user.

    Args:
        job: whose name it is.
    """
    namespace = job["metadata"]["namespace"]
    return (
        f"your namespace {namespace} has a DDPJob {JOB} that `make demo` did not create; it is left alone. "
        "Either\n"
        f"  kubectl --namespace {namespace} delete ddpjob {JOB}\n"
        "or run the demonstration in another namespace:\n"
        "  kubectl create namespace ddpjob-demo\n"
        "  kubectl config set-context --current --namespace ddpjob-demo"
    )


def follow(
    job: Callable[[], dict[str, Any]],
    row: Callable[[], list[str]],
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Print a line of `kubectl get ddpjobs` whenever it changes, until the job has finished.

    Raises:
        SystemExit: it did not finish in time.
    """
    shown: list[str] = []
    while True:
        header, line = row()
        # A change of the age alone is not worth a line.
        news = line.rsplit(None, 1)[0]
        if not shown:
            say(f"  {header}")
        if not shown or shown[-1] != news:
            say(f"  {line}")
            shown.append(news)
        current = job()
        if current.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return current
        if clock() > deadline:
            sys.exit(f"the job did not finish within {DEADLINE_SECONDS:.0f} s: kubectl describe ddpjob {JOB}")
        time.sleep(LOOK_EVERY_SECONDS)


def accuracy_in(log: str) -> str:
    """The held-out accuracy that rank 0 printed at its end, or "" where it printed none."""
    lines = re.findall(r"Accuracy \d\.\d+ on .*", log)
    return lines[-1] if lines else ""


def _row() -> list[str]:
    return kubectl("get", "ddpjob", JOB).splitlines()[:2]


def main() -> None:
    """Run the demonstration; exits non-zero where the job does not succeed."""
    kubectl_program = os.environ.get("KUBECTL", "kubectl")
    say("demo: deploying the operator (manifests/crd, manifests/base)")
    deploy()
    if os.environ.get("USE_EXISTING_CLUSTER") == "1":
        found = kubectl("get", "ddpjob", JOB, "-o", "json", "--show-managed-fields", "--ignore-not-found")
        if found and not is_of_the_demo(json.loads(found)):
            sys.exit(not_ours(json.loads(found)))
    # A finished job does not run again by applying it: it is replaced, which is also how a user repeats one.
    kubectl("delete", "ddpjob", JOB, "--ignore-not-found", "--wait=true")
    manifest = MANIFEST.read_text().replace(IMAGE, os.environ.get("DDPJOB_TRAINER_IMAGE", IMAGE))
    say(f"\n$ kubectl apply -f {MANIFEST.relative_to(ROOT)}\n")
    say("  " + manifest.strip().replace("\n", "\n  ") + "\n")
    kubectl("apply", "--field-manager", MANAGER, "-f", "-", stdin=manifest)
    say("$ kubectl get ddpjobs --watch\n")
    job = follow(look, _row, time.monotonic() + DEADLINE_SECONDS)
    status = job["status"]
    attempt = status["attempt"]
    log = kubectl("logs", f"{JOB}-a{attempt}-0")
    say(f"\n$ kubectl logs {JOB}-a{attempt}-0   (the last lines of rank 0's node)\n")
    say("  " + "\n  ".join(log.strip().splitlines()[-8:]) + "\n")
    if status["phase"] != "Succeeded":
        sys.exit(f"the job failed: {status.get('failure', {}).get('message', 'kubectl describe ddpjob ' + JOB)}")
    say(f"demo: Succeeded. {accuracy_in(log)}")
    existing = os.environ.get("USE_EXISTING_CLUSTER") == "1"
    say(next_steps(os.environ.get("KUBECONFIG", ""), kubectl_program, existing=existing))


def next_steps(kubeconfig: str, program: str, *, existing: bool = False) -> str:
    """Where to look next.

    Args:
        kubeconfig: of the cluster, "" where it is the user's own.
        program: kubectl, as a path where it is not the user's own.
        existing: whether the cluster is one that the user already had.
    """
    export = f"  export KUBECONFIG={kubeconfig}\n" if kubeconfig else ""
    if os.sep in program and shutil.which("kubectl") is None:
        export += f"  export PATH=$PATH:{os.path.dirname(program)}\n"  # noqa: PTH120 a word of text, no path of ours
    end = "make clean                               # remove the cluster and everything created for it"
    if existing:
        end = "kubectl delete -k manifests/base         # remove the operator; jobs remain until the CRD is deleted:\n"
        end += "  kubectl delete -f manifests/crd/ddpjobs.yaml"
    return f"""
Next steps:
{export}  kubectl get ddpjobs -o wide              # speed, launcher, backend, time of the last step
  kubectl describe ddpjob {JOB}           # conditions, events, why
  kubectl explain ddpjob.spec.rendezvous   # every field is documented
  kubectl logs -l ddpjob.dev/job={JOB},ddpjob.dev/ordinal=1
  kubectl delete ddpjob {JOB} && kubectl apply -f {MANIFEST.relative_to(ROOT)}   # train again
  {end}"""


if __name__ == "__main__":
    main()
