"""Where each process is: its host, its rank, the number of processes and its device.

    torchrun --nproc-per-node=2 run_with_torchrun.py

`run_with_mpirun` and `run_with_python` say the same under mpirun and for processes that the program spawns.
"""

import socket

import torch

from ddpjob_trainer import configure_logging, current_environment, process_group
from ddpjob_trainer.observability.log import say


def main() -> None:
    """Print the place of this process."""
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group:
        if group.device.type == "cuda":
            torch.set_default_device(group.device)
        host = f"{socket.gethostname()}$Process {group.rank}"
        say(f"{host}: {environment.local_rank} # {group.world_size}")
        # Without GPUs this is the CPU.
        say(f"{host}: Default device is set to {group.device.index if group.device.type == 'cuda' else 'cpu'}")


if __name__ == "__main__":
    main()
