"""PyTorch DDP training that shows its progress, saves, and resumes where it was.

Importing the package costs nothing: torch is imported with the first name that needs it.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ddpjob_trainer.activity import Activity
    from ddpjob_trainer.checkpoint import Checkpoints, checkpoints
    from ddpjob_trainer.early_stopping import EarlyStopping, Mode
    from ddpjob_trainer.environment import Environment, MisuseError, current_environment
    from ddpjob_trainer.exchange import Exchange
    from ddpjob_trainer.group import Group, process_group
    from ddpjob_trainer.listener import Listener
    from ddpjob_trainer.log import EpochLines, configure_logging
    from ddpjob_trainer.optimization import Compression, Optimization, Precision
    from ddpjob_trainer.reporting import report_progress
    from ddpjob_trainer.settings import Interval, Settings
    from ddpjob_trainer.spawning import spawn
    from ddpjob_trainer.stop import Stopped, StopRequests
    from ddpjob_trainer.telemetry import Telemetry
    from ddpjob_trainer.trainer import Trainer
    from ddpjob_trainer.training import train

__all__ = [
    "Activity",
    "Checkpoints",
    "Compression",
    "EarlyStopping",
    "Environment",
    "EpochLines",
    "Exchange",
    "Group",
    "Interval",
    "Listener",
    "MisuseError",
    "Mode",
    "Optimization",
    "Precision",
    "Settings",
    "StopRequests",
    "Stopped",
    "Telemetry",
    "Trainer",
    "checkpoints",
    "configure_logging",
    "current_environment",
    "process_group",
    "report_progress",
    "spawn",
    "train",
]

_HOMES: Final = {
    "Activity": "activity",
    "Checkpoints": "checkpoint",
    "checkpoints": "checkpoint",
    "EarlyStopping": "early_stopping",
    "Mode": "early_stopping",
    "Environment": "environment",
    "MisuseError": "environment",
    "current_environment": "environment",
    "Exchange": "exchange",
    "Group": "group",
    "process_group": "group",
    "Listener": "listener",
    "EpochLines": "log",
    "configure_logging": "log",
    "Compression": "optimization",
    "Optimization": "optimization",
    "Precision": "optimization",
    "Interval": "settings",
    "Settings": "settings",
    "report_progress": "reporting",
    "spawn": "spawning",
    "StopRequests": "stop",
    "Stopped": "stop",
    "Telemetry": "telemetry",
    "Trainer": "trainer",
    "train": "training",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
