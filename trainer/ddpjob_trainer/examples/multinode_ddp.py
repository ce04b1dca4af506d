r"""Several nodes without GPUs, one process each, over gloo.

    torchrun --nproc-per-node=1 --nnodes=2 --node-rank=0 --rdzv-id=456 --rdzv-backend=c10d \
        --rdzv-endpoint=10.0.0.1:29603 multinode_ddp.py 1000 1000

The numbers are epochs and epochs between two checkpoints.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer import current_environment
from ddpjob_trainer.examples import toy


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.train(toy.parse_arguments("multinode_ddp", current_environment().arguments))


if __name__ == "__main__":
    main()
