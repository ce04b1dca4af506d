"""transformers' Trainer with this library's progress, metrics, checkpoints and agreed stop.

The Trainer's own checkpoints are pickles, written in place by every process; those of this library are neither, and
need a volume only on rank 0's node. So the Trainer trains and says when to save, and this library does everything else.
"""

from ddpjob_trainer.huggingface.callback import ACCURACY
from ddpjob_trainer.huggingface.training import train

__all__ = ["ACCURACY", "train"]
