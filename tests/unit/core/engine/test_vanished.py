from dataclasses import replace
from datetime import UTC, datetime

from ddpjob_core.engine.vanished import Departed
from ddpjob_core.observations.observed import PodRecord, Running, Terminated

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDED = Terminated(143, None, "Error", "", NOW)


def pod(ordinal: int, attempt: int = 0, trainer: Running | Terminated = ENDED) -> PodRecord:
    name = f"j-a{attempt}-{ordinal}"
    return PodRecord("default", name, f"uid-{name}", "1", "job-uid", "j", attempt, ordinal, "Failed", trainer=trainer)


def test_the_end_of_a_pod_is_known_after_it_is_gone_and_only_then() -> None:
    departed = Departed()
    departed.saw(pod(0), gone=False)
    departed.saw(pod(1), gone=True)
    departed.saw(pod(2, trainer=Running(NOW)), gone=True)
    assert departed.of("job-uid") == (pod(1),)
    assert departed.of("another") == ()


def test_the_pods_of_a_newer_attempt_replace_those_of_an_older_one_and_not_the_other_way_round() -> None:
    departed = Departed()
    departed.saw(pod(0), gone=True)
    departed.saw(pod(0, attempt=1, trainer=Running(NOW)), gone=False)
    assert departed.of("job-uid") == ()
    departed.saw(pod(0, attempt=1), gone=True)
    departed.saw(pod(1), gone=True)
    assert departed.of("job-uid") == (pod(0, attempt=1),)


def test_nothing_is_kept_of_a_job_that_is_gone_or_of_a_pod_that_belongs_to_none() -> None:
    departed = Departed()
    departed.saw(pod(0), gone=True)
    departed.forget("job-uid")
    departed.saw(replace(pod(1), owner_uid=None), gone=True)
    assert departed.of("job-uid") == ()
