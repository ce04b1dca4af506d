"""PyTorch DDP training that shows its progress, saves, and resumes where it stopped.

Importing the package is cheap: torch is imported with the first name that needs it.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
    from ddpjob_trainer.checkpointing.snapshot import TrainingState
    from ddpjob_trainer.data.position import Position
    from ddpjob_trainer.loop.batch_policy import BatchPolicy
    from ddpjob_trainer.loop.early_stopping import EarlyStopping, Mode
    from ddpjob_trainer.loop.finite import NonFiniteError, OnNan
    from ddpjob_trainer.loop.handed_out import Step, StepLost
    from ddpjob_trainer.loop.optimization import Compression, Optimization, Precision
    from ddpjob_trainer.loop.result import Result
    from ddpjob_trainer.loop.session import Session
    from ddpjob_trainer.loop.settings import Interval, Settings
    from ddpjob_trainer.loop.train import train
    from ddpjob_trainer.observability.listener import Evaluation, Listener, LogRecord, Plan, Training
    from ddpjob_trainer.observability.log import EpochLines, configure_logging
    from ddpjob_trainer.observability.reporting import report_progress
    from ddpjob_trainer.observability.telemetry import Telemetry
    from ddpjob_trainer.observability.trackers import MLflow, TensorBoard, WeightsAndBiases, mlflow_run
    from ddpjob_trainer.process.activity import Activity
    from ddpjob_trainer.process.environment import Environment, MisuseError, current_environment
    from ddpjob_trainer.process.group import Group, process_group
    from ddpjob_trainer.process.randomness import seed_everything
    from ddpjob_trainer.process.spawning import spawn
    from ddpjob_trainer.process.stop import Stopped, StopRequests

__all__ = [
    "Activity",
    "BatchPolicy",
    "Checkpoints",
    "Compression",
    "EarlyStopping",
    "Environment",
    "EpochLines",
    "Evaluation",
    "Group",
    "Interval",
    "Listener",
    "LogRecord",
    "MLflow",
    "MisuseError",
    "Mode",
    "NonFiniteError",
    "OnNan",
    "Optimization",
    "Plan",
    "Position",
    "Precision",
    "Result",
    "Session",
    "Settings",
    "Step",
    "StepLost",
    "StopRequests",
    "Stopped",
    "Telemetry",
    "TensorBoard",
    "Training",
    "TrainingState",
    "WeightsAndBiases",
    "configure_logging",
    "current_environment",
    "mlflow_run",
    "process_group",
    "report_progress",
    "seed_everything",
    "spawn",
    "train",
]

_HOMES: Final = {
    "Checkpoints": "checkpointing.checkpoints",
    "TrainingState": "checkpointing.snapshot",
    "Position": "data.position",
    "BatchPolicy": "loop.batch_policy",
    "EarlyStopping": "loop.early_stopping",
    "Mode": "loop.early_stopping",
    "NonFiniteError": "loop.finite",
    "OnNan": "loop.finite",
    "Compression": "loop.optimization",
    "Optimization": "loop.optimization",
    "Precision": "loop.optimization",
    "Step": "loop.handed_out",
    "StepLost": "loop.handed_out",
    "Result": "loop.result",
    "Session": "loop.session",
    "Interval": "loop.settings",
    "Settings": "loop.settings",
    "train": "loop.train",
    "Evaluation": "observability.listener",
    "Listener": "observability.listener",
    "LogRecord": "observability.listener",
    "Plan": "observability.listener",
    "Training": "observability.listener",
    "EpochLines": "observability.log",
    "configure_logging": "observability.log",
    "report_progress": "observability.reporting",
    "Telemetry": "observability.telemetry",
    "MLflow": "observability.trackers",
    "TensorBoard": "observability.trackers",
    "WeightsAndBiases": "observability.trackers",
    "mlflow_run": "observability.trackers",
    "Activity": "process.activity",
    "Environment": "process.environment",
    "MisuseError": "process.environment",
    "current_environment": "process.environment",
    "Group": "process.group",
    "process_group": "process.group",
    "seed_everything": "process.randomness",
    "spawn": "process.spawning",
    "StopRequests": "process.stop",
    "Stopped": "process.stop",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
