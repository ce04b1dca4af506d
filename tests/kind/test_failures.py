"""A failure explains itself: what a person reads of a job that cannot work, by itself and without a log."""

import json
import os
from typing import Any

import pytest
from jobs import TORCH_IMAGE, ddpjob, program, scripted
from kubectl import Kubectl, wait_until

ONCE = {"maxRestarts": 0, "maxProcessRestarts": 0}

PROGRAMS = {
    "raises": 'raise ValueError("bad batch")',
    "leaves": "import sys; sys.exit(42)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "grows": "hoard = []\nwhile True: hoard.append(bytearray(10_000_000))",
    "imports": "import nosuchmodule",
    "arguments": "import argparse; argparse.ArgumentParser(prog='train').parse_args(['--fast'])",
}

CANNOT_START = ("imports", "arguments")
# The others' are torchrun's: a failure reads the same.
UNDER_PYTHON = ("leaves", "grows", "arguments")

# name: class, reason, rank, exit code, signal, and what else the message says.
FAILED: dict[str, tuple[str, str, int | None, int | None, str | None, tuple[str, ...]]] = {
    "raises": ("Error", "ExitCode", 0, 1, None, ("rank 0 exited with code 1", "ValueError: bad batch")),
    "leaves": ("Error", "ExitCode", 0, 42, None, ("rank 0 exited with code 42",)),
    "crashes": ("Signal", "Signal", 0, None, "SIGSEGV", ("rank 0 was killed by SIGSEGV",)),
    "grows": ("OutOfMemory", "OOMKilled", None, None, None, ("spec.trainer.resources.limits.memory",)),
    "imports": ("Error", "CannotStart", 0, 1, None, ("ModuleNotFoundError: No module named 'nosuchmodule'",)),
    "arguments": ("Error", "CannotStart", 0, 2, None, ("SystemExit: 2: train: error: unrecognized arguments: --fast",)),
    "noscript": ("Error", "CannotStart", None, 1, None, ("script nothere.py not found", "check spec.trainer.script")),
    "nocommand": ("Error", "StartError", None, 128, None, ("/no/such", "no such file")),
    "noimage": (
        "Deadline",
        "StartupDeadlineExceeded",
        None,
        None,
        None,
        ("nosuch/image:1", "check spec.trainer.image"),
    ),
}

# name: what PodsScheduled and RendezvousReady say of jobs that wait for something that may yet come.
WAITING: dict[str, tuple[str, ...]] = {
    "noclaim": (
        "0/1 pods have a node; noclaim-a0-0",
        "0/1 nodes are up; 1 without a node: see PodsScheduled",
        'persistentvolumeclaim "nope" not found',
        "spec.checkpoint.claimName",
    ),
    "loops": ("0/1 nodes are up; loops-a0-0: Error: init container begins exited with code 1",),
    "noroom": ("0/1 pods have a node; noroom-a0-0: Unschedulable", "Insufficient cpu", "check spec.trainer.resources"),
}


# A sidecar that is to be up before the trainer starts, and never is.
LOOPS = {
    "name": "begins",
    "image": TORCH_IMAGE,
    "command": ["false"],
    "restartPolicy": "Always",
    "startupProbe": {"exec": {"command": ["true"]}},
}


def jobs() -> list[dict[str, Any]]:
    image = {"image": TORCH_IMAGE}
    objects = [program(name, source + "\n") for name, source in PROGRAMS.items()]
    scripts = {name: scripted(name, config_map=name, nodes=1, restart=ONCE) for name in PROGRAMS}
    for name in CANNOT_START:
        # It is their end, and not their budget, that keeps them from being tried again.
        scripts[name]["spec"].pop("restart")
    for name in UNDER_PYTHON:
        scripts[name]["spec"]["launcher"] = "python"
    scripts["grows"]["spec"]["trainer"]["resources"] = {"limits": {"memory": "400Mi"}}
    room = {"requests": {"cpu": "1000"}}
    return [
        *objects,
        *scripts.values(),
        ddpjob("noscript", nodes=1, trainer={**image, "script": "nothere.py"}),
        ddpjob("nocommand", nodes=1, trainer={**image, "command": ["/no/such"]}),
        ddpjob(
            "noimage",
            nodes=1,
            trainer={"image": "nosuch/image:1", "script": "x.py"},
            startupDeadline={"seconds": 20},
        ),
        ddpjob("noclaim", nodes=1, trainer={**image, "script": "x.py"}, checkpoint={"claimName": "nope"}),
        ddpjob("loops", nodes=1, trainer={**image, "script": "x.py"}, template={"spec": {"initContainers": [LOOPS]}}),
        ddpjob("noroom", nodes=1, trainer={**image, "script": "x.py", "resources": room}),
    ]


def test_every_failure_names_its_class_its_rank_its_code_and_what_to_do(kubectl: Kubectl) -> None:
    kubectl.apply(*jobs())
    for name, (kind, reason, rank, code, signal, texts) in FAILED.items():
        status = wait_until(
            lambda name=name: next(
                (s for s in [kubectl.job(name).get("status", {})] if s.get("phase") == "Failed"), None
            ),
            f"{name} to fail",
            150,
            lambda name=name: kubectl.story(name),
        )
        failure = status["failure"]
        assert (failure["class"], failure["reason"]) == (kind, reason), failure
        if rank is not None:
            assert failure["rank"] == rank, failure
        # How a container ends that ran out of memory is the kernel's choice.
        if kind != "OutOfMemory":
            assert (failure.get("exitCode"), failure.get("signal")) == (code, signal), failure
        for text in texts:
            assert text in failure["message"], failure
    assert 'raise ValueError("bad batch")' in kubectl.job("raises")["status"]["failure"]["traceback"]
    assert "string_at" in kubectl.job("crashes")["status"]["failure"]["traceback"]
    for name in ("noscript", "nocommand", *CANNOT_START):
        status = kubectl.job(name)["status"]
        tried = (status["attempt"], status["restarts"]["counted"], status["restarts"]["process"])
        assert tried == (0, 0, 0), f"{name} was tried again: {status}"
    told = kubectl("get", "events", "--field-selector", "involvedObject.name=raises,involvedObject.kind=DDPJob")
    assert "RestartsNotAllowed" in told
    assert "ValueError: bad batch" in told
    for name, texts in WAITING.items():

        def explained(name: str = name, texts: tuple[str, ...] = texts) -> bool:
            conditions = {c["type"]: c for c in kubectl.job(name).get("status", {}).get("conditions", [])}
            waits = [conditions.get(kind, {}) for kind in ("PodsScheduled", "RendezvousReady")]
            told = "\n".join(each["message"] for each in waits if each.get("status") == "False")
            return all(text in told for text in texts)

        wait_until(explained, f"{name} to be explained", 60, lambda name=name: kubectl.story(name))


ROOM = "ddpjob.dev/test-room"
ONE_PER_NODE = {
    "nodeSelector": {ROOM: "yes"},
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"ddpjob.dev/job": "lastpod"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    },
}


@pytest.mark.full
def test_a_job_whose_last_pod_has_no_node_waits_and_uses_up_no_restart(kubectl: Kubectl) -> None:
    nodes = json.loads(kubectl("get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "json"))["items"]
    first, second = (node["metadata"]["name"] for node in nodes[:2])
    kubectl("label", "node", first, f"{ROOM}=yes", "--overwrite")
    try:
        once = {**ONCE, "backoffSeconds": 0}
        kubectl.apply(
            program("lastpod", "print('met')\n"),
            scripted(
                "lastpod",
                config_map="lastpod",
                rendezvous={"timeoutSeconds": 10},
                restart=once,
                template={"spec": ONE_PER_NODE},
            ),
        )

        def waited() -> dict[str, Any] | None:
            status: dict[str, Any] = kubectl.job("lastpod").get("status", {})
            return status if status.get("restarts", {}).get("ignored", 0) >= 2 else None

        status = wait_until(waited, "lastpod to give up waiting twice", 180, lambda: kubectl.story("lastpod"))
        assert (status["phase"], status["restarts"]["counted"]) == ("Restarting", 0)
        assert (status["failure"]["class"], status["failure"]["reason"]) == ("Waiting", "WaitingForPods")
        assert "given up waiting for 1 of 2 pods" in status["failure"]["message"]
        assert "Unschedulable" in status["failure"]["message"]
        kubectl("label", "node", second, f"{ROOM}=yes", "--overwrite")
        kubectl.wait_for_phase("lastpod", "Succeeded")
    finally:
        for node in (first, second):
            kubectl("label", "node", node, f"{ROOM}-")


# The victims of a SIGKILL say first that they have lost a connection.
ALL_REDUCE = """
import os, signal, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1000):
    dist.all_reduce(torch.ones(1))
    if step == 20 and dist.get_rank() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
"""


@pytest.mark.timeout(900)
def test_a_killed_rank_is_named_whichever_complains_first(kubectl: Kubectl) -> None:
    runs = 20 if os.environ.get("DDPJOB_FULL") == "1" else 1
    kubectl.apply(program("killed", ALL_REDUCE))
    named = []
    for run in range(runs):
        name = f"killed-{run}"
        kubectl.apply(scripted(name, config_map="killed", procs=2, restart=ONCE))
        status = kubectl.wait_for_phase(name, "Failed")["status"]
        failure = status["failure"]
        named.append((failure["rank"], failure.get("signal"), failure["class"]))
        assert failure["pod"] == f"{name}-a0-1"
        assert any("rank 0" in text or "rank 1" in text for text in failure.get("consequences", [])), failure
        kubectl("delete", "ddpjob", name, "--wait=false")
    assert named == [(3, "SIGKILL", "Signal")] * runs
