"""The agents of the benchmark are given what those of a pod are."""

from pathlib import Path

import pytest

from ddpjob_core.children.environment import pod_environment, shared_environment
from ddpjob_core.observations.observe import job_record
from hack.bench.agents.environment import Meeting

ADDRESSES = ("PET_RDZV_ENDPOINT", "PET_LOCAL_ADDR", "PET_MASTER_ADDR", "PET_MASTER_PORT")


@pytest.mark.parametrize("backend", ["c10d", "static"])
@pytest.mark.parametrize("node", [0, 1])
def test_an_agent_has_the_variables_of_a_pod_with_addresses_of_this_machine(backend: str, node: int) -> None:
    rendezvous = {"backend": backend, "timeoutSeconds": 600}
    spec = {"nodes": 2, "procsPerNode": 1, "trainer": {"image": "i", "script": "train.py"}, "rendezvous": rendezvous}
    job = job_record({"metadata": {"namespace": "default", "name": "j", "uid": "u"}, "spec": spec})
    assert job is not None
    assert job.spec is not None
    pod = {**shared_environment(job, job.spec), **pod_environment(job, job.spec, 0, node)}
    meeting = Meeting(backend, nodes=2, port=29400, name="u-0", folder=Path("/tmp/none"), seconds=1)
    agent = meeting.torchrun(node)
    # By the launcher, where the pod does not say otherwise.
    assert agent.pop("PET_MONITOR_INTERVAL") == "0.1"
    own = {name: value for name, value in pod.items() if name.startswith("PET_")}
    assert set(agent) == set(own)
    assert {name: agent[name] for name in agent if name not in ADDRESSES} == {
        name: own[name] for name in own if name not in ADDRESSES
    }
    needed = {name for name in pod if name.startswith("DDPJOB_")}
    # What the trainer library and elastic jobs read, and no agent.
    assert needed - set(meeting.launcher(node)) == {"DDPJOB_BACKEND", "DDPJOB_PROGRESS_DEADLINE_SECONDS"}
