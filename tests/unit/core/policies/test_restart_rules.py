"""spec.restart.rules: what happens after which failure."""

from typing import Any

import pytest
from world import running_world

from ddpjob_core.api.restart import DEFAULT_RULES, RestartAction, RestartRule
from ddpjob_core.api.status import Failure
from ddpjob_core.policies.restart_rules import action_for, matches, why_failed


def failure(**fields: Any) -> Failure:
    return Failure.model_validate({"reason": "ExitCode", "message": "rank 1 exited", "class": "Error", **fields})


@pytest.mark.parametrize(
    ("rule", "fails_by", "matched"),
    [
        ({"exitCodes": [3, 7]}, {"exitCode": 7}, True),
        ({"exitCodes": [3]}, {"exitCode": 7}, False),
        ({"exitCodes": [3]}, {}, False),
        ({"signals": ["SIGKILL"]}, {"signal": "SIGKILL"}, True),
        ({"signals": ["SIGKILL"]}, {"signal": "SIGSEGV"}, False),
        ({"reasons": ["OOMKilled"]}, {"reason": "OOMKilled", "class": "OutOfMemory"}, True),
        ({"reasons": ["OutOfMemory"]}, {"reason": "OOMKilled", "class": "OutOfMemory"}, True),
        ({"reasons": ["DisruptionTarget"]}, {"reason": "Evicted", "class": "Disruption"}, True),
        ({"reasons": ["DisruptionTarget"]}, {"reason": "ExitCode"}, False),
        ({"reasons": ["CannotStart"]}, {"reason": "CannotStart", "message": "no script"}, True),
        (
            {"reasons": ["CannotStart"]},
            {"reason": "StartError", "message": 'exec: "/x": stat /x: no such file or directory'},
            True,
        ),
        ({"reasons": ["CannotStart"]}, {"reason": "StartError", "message": "cgroup: device busy"}, False),
        ({"message": "CUDA error"}, {"message": "RuntimeError: CUDA error: no kernel"}, True),
        ({"message": "CUDA error"}, {"traceback": "...\nCUDA error: x"}, True),
        ({"message": "CUDA error"}, {}, False),
        ({"exitCodes": [7], "message": "bad"}, {"exitCode": 7}, False),
        ({"exitCodes": [7], "message": "bad"}, {"exitCode": 7, "message": "bad luck"}, True),
    ],
)
def test_a_rule_matches_when_all_that_it_gives_does(
    rule: dict[str, Any], fails_by: dict[str, Any], *, matched: bool
) -> None:
    rules = [RestartRule.model_validate({"action": "Fail", **rule})]
    assert (action_for(failure(**fails_by), rules) is RestartAction.FAIL) is matched


def test_the_first_rule_that_matches_decides() -> None:
    rules = [
        RestartRule.model_validate({"action": "Ignore", "exitCodes": [7]}),
        RestartRule.model_validate({"action": "Fail", "exitCodes": [7]}),
    ]
    assert action_for(failure(exitCode=7), rules) is RestartAction.IGNORE


def test_without_a_rule_a_disruption_is_ignored_and_all_else_restarted() -> None:
    assert action_for(failure(**{"class": "Disruption"}), []) is RestartAction.IGNORE
    assert action_for(failure(), []) is RestartAction.RESTART
    disrupted_counts = [RestartRule.model_validate({"action": "Restart", "reasons": ["DisruptionTarget"]})]
    assert action_for(failure(**{"class": "Disruption"}), disrupted_counts) is RestartAction.RESTART


def test_a_rule_of_a_job_that_sets_nothing_matches_nothing() -> None:
    nothing = [RestartRule.model_validate({"action": action}) for action in ("Ignore", "Fail")]
    assert action_for(failure(), nothing) is RestartAction.RESTART


def test_the_default_rules_cover_every_failure_and_the_last_one_alone_covers_all() -> None:
    assert [matches(default.rule, failure()) for default in DEFAULT_RULES] == [
        *[False] * (len(DEFAULT_RULES) - 1),
        True,
    ]


def test_a_rule_that_fails_the_job_gives_its_reason_and_that_of_a_default_rule_where_it_says_the_same() -> None:
    missing = failure(reason="CannotStart", message="no script")
    assert action_for(missing, []) is RestartAction.FAIL
    assert why_failed(missing) == ("CannotStart", "another attempt would end the same way")
    assert why_failed(failure()) == ("FailedByRule", "a rule in spec.restart.rules has the action Fail")


def test_failures_in_a_row_double_the_wait() -> None:
    world = running_world(restart={"maxRestarts": 10})
    waits = []
    for attempt in range(8):
        world.end(f"digits-a{attempt}-0", 1)
        world.end(f"digits-a{attempt}-1", 1)
        world.settle()
        waited = 0
        while f"digits-a{attempt + 1}-0" not in world.pods:
            world.advance(1)
            waited += 1
            world.settle()
        waits.append(waited)
        world.run_all()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
