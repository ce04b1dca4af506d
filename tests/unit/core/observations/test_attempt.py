"""The state of each node of an attempt."""

from collections import Counter
from dataclasses import replace

import pytest
from world import World, spec_of

from ddpjob_core.decide import decide
from ddpjob_core.observations import attempt as module
from ddpjob_core.observations.attempt import Attempt, NodeState, node_state, view_attempt
from ddpjob_core.observations.observed import PodRecord


def mixed_world() -> World:
    """One node in each state, and a second one whose pod is gone."""
    world = World(spec=spec_of(nodes=6))
    world.settle()
    for name in ("digits-a0-1", "digits-a0-2", "digits-a0-3"):
        world.run(name)
    world.end("digits-a0-2", 0)
    world.end("digits-a0-3", 1)
    for name in ("digits-a0-4", "digits-a0-5"):
        world.pods.pop(name)
    return world


def attempt_of(world: World, *succeeded: int) -> Attempt:
    return view_attempt("digits", 0, 6, tuple(world.pods.values()), succeeded=frozenset(succeeded))


def test_the_states_are_those_of_the_pods_and_of_what_was_seen_to_succeed() -> None:
    attempt = attempt_of(mixed_world(), 0, 4)
    assert attempt.states() == (
        NodeState.PENDING,
        NodeState.RUNNING,
        NodeState.SUCCEEDED,
        NodeState.FAILED,
        NodeState.SUCCEEDED,
        NodeState.MISSING,
    )
    assert attempt.states() == tuple(attempt.state(ordinal) for ordinal in range(6))


def test_an_attempt_that_was_changed_has_states_of_its_own_and_equal_ones_are_equal() -> None:
    world = mixed_world()
    attempt = attempt_of(world)
    assert attempt == attempt_of(world)
    other = replace(attempt, nodes=attempt.nodes[::-1])
    assert other != attempt
    assert other.states() == attempt.states()[::-1]


def test_a_look_finds_the_state_of_each_node_of_a_large_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(spec=spec_of(nodes=100))
    world.settle()
    world.run_all()
    looked = Counter[str]()

    def counting(pod: PodRecord | None) -> NodeState:
        looked["" if pod is None else pod.name] += 1
        return node_state(pod)

    monkeypatch.setattr(module, "node_state", counting)
    decide(world.observe())
    assert looked == dict.fromkeys(world.pods, 1)
