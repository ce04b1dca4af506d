"""What a failure means, and what to do about it."""

import pytest

from ddpjob.views.advice import advice, meaning
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.failure_class import FailureClass


@pytest.mark.parametrize("kind", list(FailureClass))
def test_every_class_of_failures_has_a_meaning_and_something_to_do(kind: FailureClass) -> None:
    failure = Failure(failure_class=kind.value, reason="R", message="m")
    assert meaning(failure)
    assert advice(failure)


def test_a_class_of_a_newer_version_is_not_an_error() -> None:
    failure = Failure(failure_class="Unheard", reason="R", message="m")
    assert meaning(failure) == ""
    assert advice(failure) == []


def test_a_lost_pod_sends_to_its_own_node() -> None:
    failure = Failure(failure_class="PodLost", reason="NodeLost", message="m", node_name="node-7")
    assert advice(failure)[0].endswith("kubectl describe node node-7")
