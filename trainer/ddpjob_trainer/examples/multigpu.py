"""One process per GPU of a node, spawned by the program itself.

    python multigpu.py 50 10

As a DDPJob with the launcher python it spawns `spec.procsPerNode` processes on each node.
"""

from ddpjob_trainer import current_environment, spawn
from ddpjob_trainer.examples import toy


def main() -> None:
    """Start the processes of this node, each of which trains as the command line says."""
    environment = current_environment()
    toy.parse_arguments("multigpu", environment.arguments)
    spawn(train, environment)


def train() -> None:
    """Train in one of the processes."""
    toy.train(toy.parse_arguments("multigpu", current_environment().arguments))


if __name__ == "__main__":
    main()
