"""One process per GPU of a node, started by torchrun.

torchrun --standalone --nproc-per-node=gpu multigpu_torchrun.py 50 10

The numbers are epochs and epochs between two checkpoints.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer import current_environment
from ddpjob_trainer.examples import toy


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.train(toy.parse_arguments("multigpu_torchrun", current_environment().arguments))


if __name__ == "__main__":
    main()
