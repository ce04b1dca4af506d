"""A job whose checkpoints go into a claim that was there before it says so."""

import pytest
from world import World, spec_of


def told(world: World) -> list[str]:
    return [event.message for event in world.events if event.reason == "ClaimReused"]


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        (
            {"size": "1Gi"},
            "checkpoints go into the claim digits-checkpoints (uid old), which was there before",
        ),
        ({"size": "1Gi", "resumeFrom": "earlier"}, "resumes from what it holds of earlier"),
    ],
)
def test_a_claim_that_was_there_is_named_once(checkpoint: dict[str, str], said: str) -> None:
    world = World(spec=spec_of(checkpoint=checkpoint), found_claim="old")
    world.restart()
    (message,) = told(world)
    assert said in message


def test_a_claim_that_the_job_has_created_or_that_the_user_names_is_nothing_to_tell() -> None:
    for checkpoint in ({"size": "1Gi"}, {"claimName": "mine"}):
        world = World(spec=spec_of(checkpoint=checkpoint))
        world.settle()
        assert told(world) == []
