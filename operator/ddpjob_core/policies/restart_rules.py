"""spec.restart.rules: what happens after which failure."""

from collections.abc import Sequence
from typing import Final

from ddpjob_core.api.restart import (
    CANNOT_START,
    DEFAULT_RULES,
    DISRUPTION_TARGET,
    RULE_CONDITIONS,
    RestartAction,
    RestartRule,
)
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.failure_class import FailureClass, is_permanent

_BY_RULE_OF_THE_JOB: Final = ("FailedByRule", "a rule in spec.restart.rules has the action Fail")


def action_for(failure: Failure, rules: Sequence[RestartRule]) -> RestartAction:
    """The action of the first rule that matches, the job's own rules before the default ones."""
    own = (rule for rule in rules if _sets_anything(rule))
    candidates = (*own, *(default.rule for default in DEFAULT_RULES))
    return next(rule.action for rule in candidates if matches(rule, failure))


def why_failed(failure: Failure) -> tuple[str, str]:
    """Reason and explanation for a job that a rule has failed: a default rule that says the same says more."""
    default = next(default for default in DEFAULT_RULES if matches(default.rule, failure))
    return (default.reason, default.because) if default.rule.action is RestartAction.FAIL else _BY_RULE_OF_THE_JOB


def matches(rule: RestartRule, failure: Failure) -> bool:
    """Whether the failure matches every field that the rule sets."""
    text = f"{failure.message}\n{failure.traceback or ''}"
    return (
        (rule.exit_codes is None or failure.exit_code in rule.exit_codes)
        and (rule.signals is None or failure.signal in rule.signals)
        and (rule.reasons is None or bool(_names(failure) & set(rule.reasons)))
        and (rule.message is None or rule.message in text)
    )


def _sets_anything(rule: RestartRule) -> bool:
    # The API server refuses a rule that sets nothing. One that reaches the operator all the same must not turn every
    # failure into the same outcome.
    given = rule.to_wire()
    return any(name in given for name in RULE_CONDITIONS)


def _names(failure: Failure) -> set[str | None]:
    # The pod condition's own name, as Job's podFailurePolicy has it.
    disrupted = failure.failure_class == FailureClass.DISRUPTION.value
    cannot_start = is_permanent(failure.reason, failure.message)
    return {
        failure.reason,
        failure.failure_class,
        *([DISRUPTION_TARGET] if disrupted else []),
        # Whether the launcher or the kubelet has found it missing.
        *([CANNOT_START] if cannot_start else []),
    }
