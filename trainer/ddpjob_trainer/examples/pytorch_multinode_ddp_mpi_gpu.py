r"""Several nodes with GPUs, started by mpirun.

    mpirun -np 2 -H 10.0.0.1,10.0.0.2 -x MASTER_ADDR=10.0.0.1 -x MASTER_PORT=29603 \
        python3 pytorch_multinode_ddp_mpi_gpu.py 1000 1000

    torchrun --nproc-per-node=1 --nnodes=2 --node-rank=0 --rdzv-id=456 --rdzv-backend=c10d \
        --rdzv-endpoint=10.0.0.1:29603 pytorch_multinode_ddp_mpi_gpu.py 1000 1000

The numbers are epochs and epochs between two checkpoints. MPI starts the processes, NCCL moves the data of the
GPUs: to use MPI for that too, torch must be built with an MPI that supports CUDA, which no published torch is.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer.examples import toy
from ddpjob_trainer.process.environment import Backend


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.need_gpu("pytorch_multinode_ddp_mpi_gpu")
    toy.train_under_mpirun("pytorch_multinode_ddp_mpi_gpu", Backend.NCCL, otherwise=Backend.NCCL)


if __name__ == "__main__":
    main()
