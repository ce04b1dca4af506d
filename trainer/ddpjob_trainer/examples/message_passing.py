r"""Rank 0 sends a tensor to every other rank.

    python -m torch.distributed.launch --nproc-per-node=2 --nnodes=2 --node-rank=0 \
        --master-addr=10.0.0.1 --master-port=1234 message_passing.py --backend=gloo

    mpirun -np 4 -H 10.0.0.1:2,10.0.0.2:2 -x MASTER_ADDR=10.0.0.1 -x MASTER_PORT=1234 -x PATH \
        -bind-to none -map-by slot -mca pml ob1 -mca btl ^openib python3 message_passing.py --backend=gloo

It prints the same under every launcher.
"""

import argparse
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from ddpjob_trainer import configure_logging, current_environment, process_group
from ddpjob_trainer.observability.log import say
from ddpjob_trainer.process.environment import Backend
from ddpjob_trainer.process.group import Group


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Send and receive over the backend that the command line names."""
    environment = current_environment()
    parser = argparse.ArgumentParser(prog="message_passing", description="Send a tensor from rank 0 to all others.")
    parser.add_argument("--backend", choices=list(Backend), help="default: nccl with GPUs, else gloo")
    asked = parser.parse_args(environment.arguments).backend
    configure_logging(environment)
    if asked is not None:
        environment = replace(environment, job=replace(environment.job, backend=Backend(asked)))
    with process_group(environment) as group:
        pass_messages(group)


def pass_messages(group: Group) -> None:
    """Send from rank 0 to each of the others, which check what they receive."""
    if group.first:
        for receiver in range(1, group.world_size):
            dist.send(torch.full((1,), float(receiver), device=group.device), dst=receiver)
            say(f"Rank 0 sent data to Rank {receiver}")
        return
    tensor = torch.zeros(1, device=group.device)
    dist.recv(tensor, src=0)
    if tensor.item() != group.rank:
        raise RuntimeError(f"rank {group.rank} received {tensor.item()}")
    say(f"Rank {group.rank} has received data from rank 0")


if __name__ == "__main__":
    main()
