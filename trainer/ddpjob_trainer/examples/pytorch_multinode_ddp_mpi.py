r"""Several nodes without GPUs, over MPI.

    mpirun -np 2 -H 10.0.0.1,10.0.0.2 python3 pytorch_multinode_ddp_mpi.py 1000 1000

    torchrun --nproc-per-node=1 --nnodes=2 --node-rank=0 --rdzv-id=456 --rdzv-backend=c10d \
        --rdzv-endpoint=10.0.0.1:29603 pytorch_multinode_ddp_mpi.py 1000 1000

The numbers are epochs and epochs between two checkpoints. MPI only knows the processes
that mpirun has started: each one started by torchrun would be a world of its own. Under torchrun gloo replaces MPI, and
the log says so.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer.examples import toy
from ddpjob_trainer.process.environment import Backend


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.train_under_mpirun("pytorch_multinode_ddp_mpi", Backend.MPI, otherwise=Backend.GLOO)


if __name__ == "__main__":
    main()
