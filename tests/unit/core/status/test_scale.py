"""What the status says for the scale subresource, which an autoscaler reads."""

import pytest
from world import World, running_world

from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import JobRecord

ELASTIC = {"maxNodes": 4}


def shown(world: World) -> tuple[int | None, str]:
    assert world.status is not None
    assert world.status.selector is not None
    return world.status.replicas, world.status.selector


def labels(job: JobRecord, attempt: int) -> set[str]:
    assert job.spec is not None
    pod = build_pod(job, job.spec, attempt, 0)
    return {f"{name}={value}" for name, value in pod["metadata"]["labels"].items()}


def test_pods_of_former_attempts_are_not_selected() -> None:
    world = running_world()
    assert set(shown(world)[1].split(",")) <= labels(world.job(), 0)
    world.end("digits-a0-0", 0)
    world.end("digits-a0-1", 1)
    world.settle()
    world.advance(60)
    world.settle()
    assert "digits-a0-0" in world.pods, "its log can still be read"
    selected = set(shown(world)[1].split(","))
    assert selected <= labels(world.job(), 1)
    assert not selected <= labels(world.job(), 0)
    assert not selected <= labels(JobRecord("default", "digits", "other", "1", 1, deleting=False, spec=world.spec), 1)


def test_pods_count_until_they_end_or_are_asked_to() -> None:
    world = running_world(nodes=3, elastic=ELASTIC)
    assert shown(world)[0] == 3
    world.spec = world.spec.model_copy(update={"nodes": 1})
    world.generation += 1
    world.settle()
    world.advance(6)
    world.settle()
    assert len(world.pods) == 3, "those that leave are still stopping"
    assert shown(world)[0] == 1


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_finished_job_has_no_replicas(policy: str) -> None:
    world = running_world(cleanPodPolicy=policy)
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert shown(world)[0] == 0


def test_what_a_failed_job_leaves_running_counts_until_it_ends() -> None:
    world = running_world(nodes=3, cleanPodPolicy="None", restart={"maxRestarts": 0})
    world.end("digits-a0-1", 1)
    world.settle()
    world.advance(60)
    world.settle()
    assert shown(world)[0] == 2
    world.end("digits-a0-0", 1)
    world.settle()
    world.advance(6)
    world.settle()
    assert shown(world)[0] == 1


def test_a_suspended_job_has_no_replicas() -> None:
    world = running_world()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(6)
    world.settle()
    assert shown(world)[0] == 0
