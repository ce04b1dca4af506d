r"""Several nodes that meet at a master address, as a PBS script starts them.

    torchrun --nnodes=2 --nproc-per-node=4 --node-rank=$PBS_NODEID --master-addr=$MASTER_ADDR \
        --master-port=12355 multinode_torchrun.py

It takes the same arguments as the others, and trains 20 epochs without arguments.
"""

from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer import current_environment
from ddpjob_trainer.examples import toy


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train as the command line says."""
    toy.train(toy.parse_arguments("multinode_torchrun", current_environment().arguments, toy.DEFAULT))


if __name__ == "__main__":
    main()
