from dataclasses import replace
from datetime import UTC, datetime

from ddpjob_core.engine.vanished import VanishedPods
from ddpjob_core.observations.observed import PodRecord, Running, Terminated

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDED = Terminated(143, None, "Error", "", NOW)


def pod(ordinal: int, attempt: int = 0, trainer: Running | Terminated = ENDED) -> PodRecord:
    name = f"j-a{attempt}-{ordinal}"
    return PodRecord("default", name, f"uid-{name}", "1", "job-uid", "j", attempt, ordinal, "Failed", trainer=trainer)


def test_the_end_of_a_pod_is_known_after_it_is_gone_and_only_then() -> None:
    vanished = VanishedPods()
    vanished.saw(pod(0), gone=False)
    vanished.saw(pod(1), gone=True)
    vanished.saw(pod(2, trainer=Running(NOW)), gone=True)
    assert vanished.pods == (pod(1),)


def test_a_pod_that_was_removed_by_force_is_known_with_its_condition() -> None:
    vanished, evicted = VanishedPods(), replace(pod(0, trainer=Running(NOW)), disruption="DeletionByPodGC")
    vanished.saw(evicted, gone=False)
    assert vanished.pods == ()
    vanished.saw(evicted, gone=True)
    assert vanished.pods == (evicted,)


def test_the_pods_of_a_newer_attempt_replace_those_of_an_older_one_and_not_the_other_way_round() -> None:
    vanished = VanishedPods()
    vanished.saw(pod(0), gone=True)
    vanished.saw(pod(0, attempt=1, trainer=Running(NOW)), gone=False)
    assert vanished.pods == ()
    vanished.saw(pod(0, attempt=1), gone=True)
    vanished.saw(pod(1), gone=True)
    assert vanished.pods == (pod(0, attempt=1),)
