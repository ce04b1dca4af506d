"""What holds whatever programs report, clocks show, neighbours make, and writers of specs and statuses write.

The walks are drawn from numbered seeds, so that one that fails can be repeated alone: `DDPJOB_WALK=1234`.
"""

import os
from datetime import timedelta
from itertools import chain
from random import Random

import pytest
from hostile import HostileWorld, at_rest, begin, calm, disturb, forget_ended
from misfits import misfits

from ddpjob_core.api import DDPJobStatus
from ddpjob_core.api.schemas import status_schema
from ddpjob_core.decide import Plan, decide
from ddpjob_core.observations.rendezvous import MOST_NODES
from ddpjob_core.observations.stall import MOST_RANKS

FULL = os.environ.get("DDPJOB_FULL") == "1"
WALKS = 1_000_000 if FULL else 10_000
BLOCK = WALKS // 20
MOST_LOOKS = 4 if FULL else 2
ONLY = os.environ.get("DDPJOB_WALK")
SCHEMA = status_schema()
LONGEST_WAIT = timedelta(days=366 * 20)


def look(world: HostileWorld, most_actions: int = 4) -> None:
    before = world.job().status
    world.taken_over = world.taken_over or world.now
    plan = decide(world.observe())
    check(plan, before, deleting=world.deleting)
    if plan.status is not None:
        world.status = plan.status
        world.last_write = world.now
    if world.job().spec is not None:
        for action in plan.actions[:most_actions]:
            world.apply(action)


def check(plan: Plan, before: DDPJobStatus | None, *, deleting: bool) -> None:
    if deleting:
        assert plan == Plan()
    if plan.requeue_after is not None:
        assert timedelta() < plan.requeue_after < LONGEST_WAIT
    assert len(plan.poll) <= MOST_RANKS + MOST_NODES
    assert all(0 < target.port < 65536 and target.rank < 2**31 for target in plan.poll)
    texts = [event.message for event in plan.events]
    if plan.status is not None:
        status = plan.status
        wire = status.to_wire()
        assert misfits("status", wire, SCHEMA) == []
        assert DDPJobStatus.model_validate(wire).to_wire() == wire, "what is read back is what was written"
        assert before is None or status.attempt >= before.attempt
        texts += [condition.message for condition in status.conditions]
        if status.failure is not None:
            failure = status.failure
            texts += [failure.message, failure.reason, *(failure.consequences or ())]
            texts += (failure.traceback or "").split("\n")
        texts += [*vars(status.summary).values()]
        texts += chain.from_iterable(stack.text.split("\n") for stack in status.stacks or ())
    assert all(text.isprintable() for text in texts), texts


def comes_to_rest(world: HostileWorld, *, suspend: bool) -> None:
    calm(world, suspend=suspend)
    for _ in range(60):
        forget_ended(world)
        world.now += timedelta(seconds=90)
        # As many as the largest job of a walk needs to be created, ended and removed in these looks.
        look(world, 1_000)
        if at_rest(world):
            return
        if not suspend:
            for name in world.live():
                world.end(name, 0)
    raise AssertionError(f"neither stopped nor finished: {world.status} {sorted(world.pods.values(), key=str)}")


def walk(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 a walk that can be repeated
    world = begin(rng)
    try:
        for _ in range(rng.randint(1, MOST_LOOKS)):
            for _ in range(rng.randint(1, 3)):
                disturb(world, rng)
            look(world)
        if seed % 10 == 0:
            comes_to_rest(world, suspend=seed % 20 == 0)
    except Exception as error:
        error.add_note(f"DDPJOB_WALK={seed}: " + "\n  ".join(world.steps))
        raise


@pytest.mark.parametrize("block", [None] if ONLY else range(20))
def test_whatever_comes_in_a_job_is_decided_on_and_its_status_is_valid(block: int | None) -> None:
    seeds = [int(ONLY or 0)] if block is None else range(block * BLOCK, (block + 1) * BLOCK)
    for seed in seeds:
        walk(seed)
