"""A node's processes, spawned by the program itself: what `multinode_torchrun` is without torchrun.

    python distributed_data_parallel.py

It takes the same arguments as the others, and trains 20 epochs without arguments.
"""

from ddpjob_trainer import current_environment, spawn
from ddpjob_trainer.examples import toy


def main() -> None:
    """Start the processes of this node, each of which trains as the command line says."""
    environment = current_environment()
    toy.parse_arguments("distributed_data_parallel", environment.arguments, toy.DEFAULT)
    spawn(train, environment)


def train() -> None:
    """Train in one of the processes."""
    toy.train(toy.parse_arguments("distributed_data_parallel", current_environment().arguments, toy.DEFAULT))


if __name__ == "__main__":
    main()
