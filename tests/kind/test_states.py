"""A killed process gives the same states on a cluster as without one; tests/torch has the other half."""

import json
import signal
import subprocess
import threading

from kubectl import Kubectl
from states import JOB, KILLED_BEYOND, NAME, PROGRAM, RANK, STATES, State, from_running_on, state_of
from steady import claim, trains


def test_killed_processes_give_these_states_on_a_cluster(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), PROGRAM, JOB)
    states: list[State] = []
    show = ["-o", r"jsonpath={.status}{'\n'}"]
    watch = subprocess.Popen(
        [kubectl.program, "-n", kubectl.namespace, "get", "ddpjob", NAME, "--watch", "--request-timeout=0", *show],
        stdout=subprocess.PIPE,
        text=True,
    )
    reader = threading.Thread(target=lambda: states.extend(_read(watch)))
    reader.start()
    try:
        for beyond in KILLED_BEYOND:
            trains(kubectl, NAME, beyond)
            kubectl.signal_rank(f"{NAME}-a0-1", RANK, signal.SIGKILL)
        kubectl.wait_for_phase(NAME, "Succeeded")
    finally:
        watch.terminate()
        reader.join()
    assert from_running_on(states) == STATES, kubectl.story(NAME)


def _read(watch: "subprocess.Popen[str]") -> list[State]:
    assert watch.stdout is not None
    return [state_of(json.loads(line)) for line in watch.stdout if line.strip()]
