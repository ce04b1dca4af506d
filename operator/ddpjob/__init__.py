"""DDPJobs: PyTorch DistributedDataParallel trainings on Kubernetes.

    from ddpjob import DDPJob

    job = DDPJob.submit("train.py", "20", image="ddpjob-torch:cpu", nodes=2, procs_per_node=2)
    for status in job.watch():
        print(status.phase, status.summary.step)
    job.result()

They are imported when they are first used: the command line's help and completion need no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpjob.python_api import DDPJob, DDPJobError, JobFailed, LogLine, Result

__all__ = ["DDPJob", "DDPJobError", "JobFailed", "LogLine", "Result"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 as the language has it
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ddpjob.python_api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
