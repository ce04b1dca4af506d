"""status.progress: what the program reported, live from rank 0 and at the end from its pod's termination message."""

from ddpjob.api.spec import DDPJobSpec
from ddpjob.api.status import Progress
from ddpjob.observed import Observed, Running, Terminated
from ddpjob.plan import PollTarget
from ddpjob.policies.attempt import Attempt
from ddpjob.report import parse_progress, parse_report


def reported_progress(observed: Observed, attempt: Attempt) -> tuple[Progress, str] | None:
    """The newest progress of the current attempt and its loss as text, or None where nothing was reported.

    The termination message of ordinal 0 wins: the last poll is always a little older than the end.
    """
    first = attempt.nodes[0]
    if first is not None and isinstance(first.trainer, Terminated):
        report = parse_report(first.trainer.message)
        if report is not None and report.progress is not None:
            return parse_progress(report.progress, observed.now)
    live = observed.progress
    if live is not None and live.attempt == attempt.number:
        return live.progress, live.loss_text
    return None


def poll_target(spec: DDPJobSpec, attempt: Attempt) -> PollTarget | None:
    """Where the progress of the current attempt can be read, or None while its first node does not run."""
    first = attempt.nodes[0]
    if first is None or not isinstance(first.trainer, Running) or first.pod_ip is None:
        return None
    return PollTarget(attempt.number, first.pod_ip, spec.metrics.port)
