"""What `run_with_torchrun` prints, for processes that the program itself spawns.

    python run_with_python.py

It spawns as many as the job requests per node, else one per GPU, else one.
"""

from ddpjob_trainer import current_environment, spawn
from ddpjob_trainer.examples import run_with_torchrun


def main() -> None:
    """Start the processes of this node."""
    spawn(run_with_torchrun.main, current_environment())


if __name__ == "__main__":
    main()
