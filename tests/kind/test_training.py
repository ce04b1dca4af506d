"""Trainings that run on the cluster from start to end, and what a person sees of them."""

import json
import re
from typing import Any

import pytest
from jobs import digits, program, scripted
from kubectl import Kubectl, wait_until

from ddpjob_core.api import DDPJobSpec
from ddpjob_core.api.constants import LABEL_MANAGED_BY
from ddpjob_core.api.names import pod_name
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.service import build_service
from ddpjob_core.observations.observed import JobRecord

DIGEST = re.compile(r"\[(?:CPU|GPU)(\d+)\] World size (\d+) \| Parameters sha256 ([0-9a-f]{64})")
ACCURACY = re.compile(r"Accuracy (\d\.\d+)")
EPOCHS = 20
PROGRESS_ROW = re.compile(rf"^digits\s+Running\s+2/2\s+0\s+\d+/{EPOCHS}\s+\d+/\d+\s+\d\.\d+\s+(?:\d+[hms])+\s+\S+$")


# torch 2.6 can deadlock, or abort, when a gloo process group ends right after a collective: the group's end holds the
# interpreter's lock while it joins a thread that needs it. What these programs show is over by then.
LEAVE = """
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""


def digests(kubectl: Kubectl, job: str) -> dict[int, tuple[int, str]]:
    """Rank to world size and digest of the parameters, from the logs of all pods of the job."""
    found = {}
    for pod in kubectl.list("pods", f"ddpjob.dev/job={job}"):
        for rank, size, digest in DIGEST.findall(kubectl.logs(pod["metadata"]["name"])):
            found[int(rank)] = (int(size), digest)
    return found


def test_digits_train_on_two_nodes_with_live_progress_that_is_kept_and_again_once_the_job_is_replaced(
    kubectl: Kubectl,
) -> None:
    kubectl.apply(digits("digits", epochs=EPOCHS))
    seen: list[str] = []

    def row() -> str | None:
        line = kubectl("get", "ddpjobs", "digits", "--no-headers").strip()
        seen.append(line)
        assert " Failed " not in line, kubectl.story("digits")
        return line if PROGRESS_ROW.match(line) or " Succeeded " in line else None

    live = wait_until(row, "a line with live progress", 120, lambda: "\n".join(seen[-5:]) + kubectl.story("digits"))
    assert PROGRESS_ROW.match(live), f"no live progress before the end: {seen}"
    job = kubectl.wait_for_phase("digits", "Succeeded")
    status = job["status"]
    assert status["restarts"]["counted"] == 0
    assert status["progress"]["epoch"] == status["progress"]["totalEpochs"] == EPOCHS
    assert status["progress"]["step"] == status["progress"]["totalSteps"] > 0
    assert status["progress"]["percent"] == 100
    accuracy = ACCURACY.search(kubectl.logs("digits-a0-0"))
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.97
    before = digests(kubectl, "digits")
    assert {rank: size for rank, (size, _) in before.items()} == {0: 4, 1: 4, 2: 4, 3: 4}
    assert len({digest for _, digest in before.values()}) == 1

    kubectl("delete", "pods", "--all", "--wait=true")
    row_at_the_end = kubectl("get", "ddpjobs", "digits", "--no-headers")
    assert re.search(rf"Succeeded\s+2/2\s+0\s+{EPOCHS}/{EPOCHS}\s+(\d+)/\1\s+\d\.\d+", row_at_the_end)

    reasons = [event["reason"] for event in kubectl.list("events") if event["involvedObject"]["kind"] == "DDPJob"]
    assert sorted(reasons) == ["PodsCreated", "Succeeded", "Training"]
    assert all(
        event.get("count", 1) == 1 for event in kubectl.list("events") if event["involvedObject"]["kind"] == "DDPJob"
    )

    # As the README says it, to train again.
    kubectl("delete", "ddpjob", "digits", "--wait=true")
    kubectl.apply(digits("digits", epochs=1, nodes=1, procs=1))
    assert kubectl.wait_for_phase("digits", "Succeeded")["status"]["attempt"] == 0


PLAIN = (
    """
import getpass, os, sys
import torch
import torch.distributed as dist

print("user", os.getuid(), getpass.getuser(), os.access(os.path.expanduser("~"), os.W_OK), flush=True)
try:
    import ddpjob_trainer
    sys.exit("ddpjob_trainer must not be in the plain torch image")
except ImportError:
    pass
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for step in range(50):
    features = torch.randn(32, 4)
    loss = ((model(features) - features.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
outer = [name for name in os.environ if name.startswith("PET_")]
print(f"rank {dist.get_rank()} of {dist.get_world_size()} loss {loss.item():.4f} torchrun {outer}")
if os.environ.get("FAIL") == str(dist.get_rank()):
    raise ValueError("the data ran out on purpose")
"""
    + LEAVE
)


def test_a_script_trains_in_a_plain_torch_image_and_its_crash_has_a_root_cause(kubectl: Kubectl) -> None:
    # As with an image that was made for root, the user has neither a name in the image nor a home.
    unknown = {"spec": {"securityContext": {"runAsUser": 4242}}}
    kubectl.apply(program("plain", PLAIN), scripted("plain", config_map="plain", template=unknown))
    kubectl.wait_for_phase("plain", "Succeeded")
    said = "".join(kubectl.logs(f"plain-a0-{ordinal}") for ordinal in (0, 1))
    losses = {
        int(rank): float(loss) for rank, loss in re.findall(r"rank (\d) of 2 loss (\d+\.\d+) torchrun \[\]", said)
    }
    assert sorted(losses) == [0, 1]
    assert max(losses.values()) < 0.1
    assert re.findall(r"^user (.*)$", said, re.MULTILINE) == ["4242 ddpjob True"] * 2

    failing = scripted(
        "failing", config_map="plain", nodes=1, procs=2, restart={"maxRestarts": 1, "maxProcessRestarts": 1}
    )
    failing["spec"]["trainer"]["env"] = [{"name": "FAIL", "value": "1"}]
    kubectl.apply(failing)
    status = kubectl.wait_for_phase("failing", "Failed")["status"]
    assert status["restarts"]["counted"] == 1
    assert status["attempt"] == 1
    failure = status["failure"]
    assert (failure["rank"], failure["ordinal"], failure["exitCode"]) == (1, 0, 1)
    assert failure["pod"] == "failing-a1-0"
    assert "ValueError: the data ran out on purpose" in failure["message"] + failure.get("traceback", "")
    described = kubectl("describe", "ddpjob", "failing")
    assert "MaxRestartsExceeded" in described
    assert "the data ran out on purpose" in described
    assert "the data ran out on purpose" in kubectl.logs("failing-a1-0")


# Without torch: what torchrun has told is there before it is loaded.
RANKS = """
import os
print(*(f"{name}={os.environ[name]}" for name in ("GROUP_RANK", "RANK", "DDPJOB_NODE_RANK")))
"""


def ranks(kubectl: Kubectl, pods: list[str]) -> dict[int, int]:
    """Ordinal to GROUP_RANK."""
    found = {}
    for pod in pods:
        said = re.search(r"GROUP_RANK=(\d+) RANK=(\d+) DDPJOB_NODE_RANK=(\d+)", kubectl.logs(pod))
        assert said is not None, pod
        found[int(said[3])] = int(said[1])
    return found


# Only c10d puts the nodes in an order, in which 10 might come before 2: its 12 agents run next to their control.
@pytest.mark.parametrize(("backend", "nodes"), [("static", 2), pytest.param("c10d", 12, marks=pytest.mark.full)])
def test_the_node_rank_is_the_pod_ordinal(kubectl: Kubectl, backend: str, nodes: int) -> None:
    kubectl.apply(program("ranks", RANKS))
    kubectl.apply(scripted(backend, config_map="ranks", nodes=nodes, rendezvous={"backend": backend}))
    kubectl.wait_for_phase(backend, "Succeeded", timeout=240)
    pods = [pod["metadata"]["name"] for pod in kubectl.list("pods", f"ddpjob.dev/job={backend}")]
    assert ranks(kubectl, pods) == {ordinal: ordinal for ordinal in range(nodes)}


@pytest.mark.full
def test_without_padded_ordinals_c10d_would_order_the_nodes_as_text(kubectl: Kubectl) -> None:
    """The control of the test above: the same pods with plain ordinals in their names must fail its assertion."""
    kubectl.apply(program("ranks", RANKS))
    pods = unpadded_pods(kubectl.namespace)
    kubectl.create(*pods)
    names = [pod["metadata"]["name"] for pod in pods if pod["kind"] == "Pod"]

    def ended() -> bool:
        phases = {name: (kubectl.get("pod", name) or {}).get("status", {}).get("phase") for name in names}
        assert "Failed" not in phases.values(), kubectl("get", "pods")
        return set(phases.values()) == {"Succeeded"}

    wait_until(ended, "all pods to succeed", 240)
    found = ranks(kubectl, names)
    assert found != {ordinal: ordinal for ordinal in range(12)}
    assert found[10] < found[2], "as text, 10 comes before 2"


def unpadded_pods(namespace: str) -> list[dict[str, Any]]:
    """The children that the operator would make for a job, with plain ordinals in the names of its pods.

    They belong to nobody and carry no label that the operator watches: it must not take them for a job's.
    """
    spec = DDPJobSpec.model_validate(scripted("model", config_map="ranks", nodes=12)["spec"])
    job = JobRecord(namespace, "model", "control", "1", 1, deleting=False, spec=spec)
    text = json.dumps([build_pod(job, spec, 0, ordinal) for ordinal in range(spec.nodes)])
    for ordinal in range(spec.nodes):
        text = text.replace(pod_name("model", 0, ordinal, spec.nodes), f"model-a0-{ordinal}")
    children = [build_service(job, spec), build_launcher(job, spec), *json.loads(text)]
    for child in children:
        del child["metadata"]["ownerReferences"], child["metadata"]["labels"][LABEL_MANAGED_BY]
    return children
