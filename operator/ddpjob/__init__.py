"""DDPJobs: PyTorch DistributedDataParallel trainings on Kubernetes.

    from ddpjob import DDPJob

    job = DDPJob.submit("train.py", "20", image="ddpjob-torch:cpu", nodes=2, procs_per_node=2)
    for status in job.watch():
        print(status.phase, status.summary.step)
    job.result()

`DDPJob` is imported when it is first used: what the operator runs needs no client of a user's.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpjob.python_api import DDPJob, LogLine, Result
    from ddpjob_core.api.errors import DDPJobError, JobFailed

__all__ = ["DDPJob", "DDPJobError", "JobFailed", "LogLine", "Result"]

_PLACES = {
    "DDPJob": "ddpjob.python_api",
    "DDPJobError": "ddpjob_core.api.errors",
    "JobFailed": "ddpjob_core.api.errors",
    "LogLine": "ddpjob.python_api",
    "Result": "ddpjob.python_api",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 as the language has it
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at the top: it imports a client.
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
