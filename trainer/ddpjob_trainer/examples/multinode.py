r"""Several nodes, started by torchrun on each of them.

    torchrun --nproc-per-node=8 --nnodes=2 --node-rank=0 --rdzv-id=456 --rdzv-backend=c10d \
        --rdzv-endpoint=[fd00::1]:29603 multinode.py --total_epochs 50 --save_every 10 --batch_size 32

With 16 processes and batches of 32 an epoch of the 2,048 samples has 4 steps.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer import current_environment
from ddpjob_trainer.examples import toy


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.train(toy.parse_arguments("multinode", current_environment().arguments))


if __name__ == "__main__":
    main()
