"""Jobs that change their size while they train, as a person changes it."""

import json
from collections import Counter

import pytest
from jobs import program
from kubectl import Kubectl, KubectlError, wait_until
from steady import claim, losses, resilient, trains

pytestmark = pytest.mark.timeout(600)

EPOCHS, SAMPLES, BATCH = 40, 240, 4

# Each process notes in a file of its own which samples it has trained on, once their step is done.
NOTES = f"""
import os, time, torch
from ddpjob_trainer import Listener, Settings, configure_logging, current_environment, process_group, train

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return {SAMPLES}

    def __getitem__(self, index):
        return index, torch.full((4,), index / {SAMPLES})

seen = []

def loss(model, batch):
    numbers, inputs = batch
    seen.extend(numbers.tolist())
    return ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()

class Notes(Listener):
    def step_finished(self, step, samples, seconds, data_seconds):
        print(*seen, file=notes, flush=True)
        seen.clear()
        time.sleep(0.05)

environment = current_environment()
configure_logging(environment)
folder = os.environ["DDPJOB_CHECKPOINT_PATH"] + "-seen"
os.makedirs(folder, exist_ok=True)
with process_group(environment) as group, open(f"{{folder}}/{{group.rank}}-{{time.time_ns()}}", "w") as notes:
    print("world size", group.world_size, flush=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        loss=loss,
        dataset=Numbers(),
        settings=Settings(total_epochs={EPOCHS}, batch_size={BATCH}, save_every=25, log_every=1),
        group=group,
        listeners=(Notes(),),
    )
    # All have noted what they have seen.
    torch.distributed.barrier()
    if group.rank == 0:
        lines = [line.split() for name in os.listdir(folder) for line in open(f"{{folder}}/{{name}}")]
        print("seen", *sorted(int(word) for line in lines for word in line), flush=True)
"""


def reaches(kubectl: Kubectl, name: str, nodes: int) -> None:
    """Wait until that many nodes train together, and have made steps."""

    def look() -> bool:
        status = kubectl.job(name)["status"]
        assert status["phase"] != "Failed", kubectl.story(name)
        _, of_this_size, since = kubectl.logs(f"{name}-a0-0").rpartition(f"world size {nodes}\n")
        return status["summary"]["nodes"] == f"{nodes}/{nodes}" and bool(of_this_size and losses(since))

    wait_until(look, f"{name} to train on {nodes} nodes", 120, lambda: kubectl.story(name))


def test_a_job_changes_its_size_while_it_trains_and_no_sample_is_lost_or_repeated(kubectl: Kubectl) -> None:
    job = resilient("resized", elastic={"minNodes": 1, "maxNodes": 4}, restart={"maxRestarts": 0})
    kubectl.apply(claim(), program("steady", NOTES), job)
    trains(kubectl, "resized", beyond=5)
    (first,) = (pod for pod in kubectl.list("pods") if pod["metadata"]["name"] == "resized-a0-0")
    for nodes in (4, 1, 3):
        kubectl("scale", "ddpjob/resized", f"--replicas={nodes}")
        reaches(kubectl, "resized", nodes)
    status = kubectl.wait_for_phase("resized", "Succeeded")["status"]
    assert status["attempt"] == 0
    assert (status["membership"]["generation"], status["membership"]["nodes"]) == (3, 3)
    assert {key: status["restarts"].get(key) for key in ("counted", "ignored", "process")} == dict.fromkeys(
        ("counted", "ignored", "process"), 0
    )
    (last,) = (pod for pod in kubectl.list("pods") if pod["metadata"]["name"] == "resized-a0-0")
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert last["status"]["containerStatuses"][0]["restartCount"] == 0
    (line,) = (line for line in kubectl.logs("resized-a0-0").splitlines() if line.startswith("seen "))
    seen = Counter(map(int, line.split()[1:]))
    assert seen == dict.fromkeys(range(SAMPLES), EPOCHS)
    # The global batch is that of the two nodes it began with.
    steps = EPOCHS * SAMPLES // (2 * BATCH)
    assert (status["progress"]["step"], status["progress"]["totalSteps"]) == (steps, steps)
    assert kubectl.logs("resized-a0-0").count(f"the global batch stays {2 * BATCH} samples") == 3
    events = json.loads(kubectl("get", "events", "-o", "json", "--field-selector", "reason=Resized"))["items"]
    assert len(events) == 3


def test_a_job_of_a_fixed_size_says_that_it_cannot_be_scaled(kubectl: Kubectl) -> None:
    kubectl.apply(program("steady", "import time\ntime.sleep(600)\n"), resilient("fixed", checkpoint=None))
    with pytest.raises(KubectlError, match=r"with spec\.elastic the number of nodes can change at any"):
        kubectl("scale", "ddpjob/fixed", "--replicas=3")
