"""One process, on a GPU if there is one.

    python single_gpu.py 50 10

trains 50 epochs and saves every 10.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer import current_environment
from ddpjob_trainer.examples import toy


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.train(toy.parse_arguments("single_gpu", current_environment().arguments))


if __name__ == "__main__":
    main()
