"""spec.restart.rules: what a certain kind of failure leads to."""

from collections.abc import Sequence

from ddpjob_core.api.restart import RestartAction, RestartRule
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.failure_class import CANNOT_START, DISRUPTION_TARGET, FailureClass, is_permanent


def action_for(failure: Failure, rules: Sequence[RestartRule]) -> RestartAction:
    """The action of the first rule that matches.

    Without one a disruption is ignored, a program that cannot be started fails the job, all else is restarted.
    """
    for rule in rules:
        if matches(rule, failure):
            return rule.action
    if is_permanent(failure.reason, failure.message):
        return RestartAction.FAIL
    return RestartAction.IGNORE if failure.failure_class == FailureClass.DISRUPTION.value else RestartAction.RESTART


def matches(rule: RestartRule, failure: Failure) -> bool:
    """Whether all that the rule gives fits the failure."""
    text = f"{failure.message}\n{failure.traceback or ''}"
    given = (
        None if rule.exit_codes is None else failure.exit_code in rule.exit_codes,
        None if rule.signals is None else failure.signal in rule.signals,
        None if rule.reasons is None else bool(_names(failure) & set(rule.reasons)),
        None if rule.message is None else rule.message in text,
    )
    said = [fits for fits in given if fits is not None]
    return bool(said) and all(said)


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
