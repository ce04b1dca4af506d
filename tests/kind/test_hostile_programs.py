"""A program that reports what no program should: only what it shows of itself suffers."""

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import program, scripted
from kubectl import Kubectl, wait_until
from operators import operator_pods

DDPJOB = str(Path(sys.executable).parent / "ddpjob")

# Answers with nonsense, ends when it is asked to in its first attempt, and by itself in its second one.
HOSTILE = r"""
import http.server, itertools, json, os, threading, time

wrong = itertools.cycle([1e300, -1e300, float("nan"), 1e12, "x", 2**63, [[]]])


class Progress(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        bad = next(wrong)
        answer = {
            **dict.fromkeys(("step", "totalSteps", "loss", "secondsSinceStep", "quietSeconds", "etaSeconds"), bad),
            **{"processRestarts": 2**40, "lastStepTime": "9999-12-31T23:59:59-14:00", "epoch": 3},
            **{"lossText": "0.5\x1b[2J\n\u202e", "stack": "\x1b]52;c;cm0=\x07" * 500, "activity": "\n"},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("", int(os.environ["DDPJOB_METRICS_PORT"])), Progress)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("\x1b[2J\x1b]52;c;cm0=\x07begun\u202e", flush=True)
time.sleep(3 if os.environ["DDPJOB_ATTEMPT"] == "1" else 600)
"""

pytestmark = pytest.mark.timeout(600)


def test_a_job_whose_program_reports_nonsense_is_suspended_resumed_and_finished(kubectl: Kubectl) -> None:
    kubectl.apply(program("hostile", HOSTILE))
    kubectl.apply(scripted("hostile", config_map="hostile", launcher="python", nodes=1, gracePeriodSeconds=1))
    wait_until(
        lambda: kubectl.job("hostile").get("status", {}).get("summary", {}).get("epoch") == "3",
        "its answers to be read",
        120,
        lambda: kubectl.story("hostile"),
    )
    status = kubectl.job("hostile")["status"]
    assert status["summary"]["loss"] == "0.5"
    assert "process" not in status["restarts"] or status["restarts"]["process"] == 0
    for command in (["status", "hostile"], ["why", "hostile"], ["logs", "hostile"]):
        done = subprocess.run([DDPJOB, *command, "-n", kubectl.namespace], capture_output=True, text=True, check=True)
        assert all(line.isprintable() for line in done.stdout.split("\n")), done.stdout
        assert "52;c" not in done.stdout
    assert "begun" in done.stdout
    kubectl.patch("ddpjob", "hostile", {"spec": {"suspend": True}})
    kubectl.wait_for_phase("hostile", "Suspended", timeout=60)
    wait_until(lambda: not kubectl.list("pods", "ddpjob.dev/job=hostile"), "the pods to be gone")
    kubectl.patch("ddpjob", "hostile", {"spec": {"suspend": False}})
    finished = kubectl.wait_for_phase("hostile", "Succeeded", timeout=120)
    assert (finished["status"]["attempt"], finished["status"]["restarts"]["counted"]) == (1, 0)


# Until it is stopped.
FULL = """
import os
with open(os.environ["PLACE"] + "/full", "wb", buffering=0) as file:
    while True:
        file.write(bytes(1 << 20))
"""
LOG = """
while True:
    print("x" * 1000)
"""
RESTS = "import time; time.sleep(600)"
AT_ONCE = {"maxRestarts": 0}


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "place", "limits", "said"),
    [
        (FULL, "/dev/shm", {"memory": "256Mi"}, ("OOMKilled", "No space left on device")),
        (FULL, "/tmp", {"ephemeral-storage": "64Mi"}, ("ephemeral local storage usage exceeds",)),
        (FULL, "/volume", {"ephemeral-storage": "64Mi"}, ("ephemeral local storage usage exceeds",)),
        (LOG, "", {"ephemeral-storage": "16Mi"}, ("ephemeral local storage usage exceeds",)),
    ],
    ids=["shared memory", "root file system", "volume", "log"],
)
def test_a_program_that_fills_what_it_may_write_to_is_ended_and_nothing_else_on_its_node(
    kubectl: Kubectl, source: str, place: str, limits: dict[str, str], said: tuple[str, ...]
) -> None:
    kubectl.apply(program("rests", RESTS), program("fills", source))
    kubectl.apply(scripted("rests", config_map="rests", launcher="python", nodes=1))
    kubectl.wait_for_phase("rests", "Running")
    (pod,) = kubectl.list("pods", "ddpjob.dev/job=rests")
    before = operator_pods()
    template = {"spec": {"nodeName": pod["spec"]["nodeName"], "volumes": [{"name": "volume", "emptyDir": {}}]}}
    job = scripted("fills", config_map="fills", launcher="python", nodes=1, template=template, restart=AT_ONCE)
    job["spec"]["trainer"]["resources"] = {"limits": limits}
    job["spec"]["trainer"]["env"] = [{"name": "PLACE", "value": place}]
    job["spec"]["trainer"]["volumeMounts"].append({"name": "volume", "mountPath": "/volume"})
    kubectl.apply(job)
    failure = kubectl.wait_for_phase("fills", "Failed", timeout=180)["status"]["failure"]
    assert any(text in failure["message"] or text == failure["reason"] for text in said), failure
    assert failure["class"] in ("Error", "OutOfMemory")
    (still,) = kubectl.list("pods", "ddpjob.dev/job=rests")
    assert (still["metadata"]["uid"], still["status"]["phase"]) == (pod["metadata"]["uid"], "Running")
    assert operator_pods() == before
