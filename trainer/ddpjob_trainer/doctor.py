"""Checks whether the processes of this job can train together. Run it instead of a training, with the same launcher.

    torchrun --nproc-per-node 2 -m ddpjob_trainer.doctor
    ddpjob run --nodes 2 --procs-per-node 2 --image IMG --module ddpjob_trainer.doctor

Every rank prints what it finds by itself, rank 0 what all ranks find together. The exit code is 1 if a problem would
prevent training.
"""

import json
import platform
import socket
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist

from ddpjob_trainer.observability.log import say
from ddpjob_trainer.process.environment import Backend, Environment, MisuseError, current_environment
from ddpjob_trainer.process.group import Group, choose_backend, choose_device, process_group
from ddpjob_trainer.process.lifetime import keep_forever

_PATIENCE: Final = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    ok: bool
    text: str

    def line(self, environment: Environment) -> str:
        """The line to print."""
        return f"[rank {environment.rank}] {'ok  ' if self.ok else 'FAIL'} {self.text}"


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on all ranks."""

    python: str
    pytorch: str
    cuda: str | None
    nccl: str | None
    device: str

    @classmethod
    def own(cls, device: torch.device) -> "Versions":
        """Of this process."""
        gpu = device.type == "cuda"
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpu and dist.is_nccl_available() else None
        name = torch.cuda.get_device_name(device) if gpu else platform.machine()
        return cls(platform.python_version(), torch.__version__, torch.version.cuda, nccl, name)


def main() -> None:
    """Check, and exit with 1 if something is wrong."""
    try:
        environment = current_environment()
    except MisuseError as misuse:
        say(f"FAIL {misuse}")
        sys.exit(1)
    alone = [*of_this_process(environment)]
    for finding in alone:
        say(finding.line(environment))
    if not all(finding.ok for finding in alone):
        sys.exit(1)
    try:
        with process_group(environment, _PATIENCE) as group:
            together = of_all(group)
            for finding in together if group.first else ():
                say(finding.line(environment))
    except (RuntimeError, ValueError) as error:
        say(Finding(ok=False, text=f"the ranks cannot connect: {error}").line(environment))
        sys.exit(1)
    sys.exit(not all(finding.ok for finding in together))


def of_this_process(environment: Environment) -> tuple[Finding, ...]:
    """Checks of this process alone."""
    rank, size, node = environment.rank, environment.world_size, environment.node_rank
    started = f"{environment.launcher}: rank {rank} of {size}, on node {node} ({socket.gethostname()})"
    backends = [backend.value for backend in Backend if dist.is_backend_available(backend.value)]
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return (
        Finding(ok=True, text=started),
        Finding(ok=True, text=f"Python {platform.python_version()}, torch {torch.__version__}"),
        Finding(ok=True, text=f"backends {', '.join(backends)}; GPUs {', '.join(gpus) or 'none'}"),
        _device(environment),
        _master(environment),
        _port(environment),
    )


def _device(environment: Environment) -> Finding:
    try:
        device = choose_device(environment)
        backend = choose_backend(environment.job.backend, device)
    except MisuseError as misuse:
        return Finding(ok=False, text=str(misuse))
    return Finding(ok=True, text=f"trains on {device} over {backend}")


def _master(environment: Environment) -> Finding:
    host = environment.master_address
    if host is None:
        return Finding(ok=True, text="no master address needed")
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, environment.master_port)}
    except OSError as error:
        return Finding(ok=False, text=f"MASTER_ADDR={host} does not resolve ({error}): check DNS, or MASTER_ADDR")
    return Finding(ok=True, text=f"MASTER_ADDR={host} resolves to {', '.join(sorted(found))}")


def _port(environment: Environment) -> Finding:
    port = environment.http_port
    if port is None:
        return Finding(ok=True, text="metrics and progress are not served: DDPJOB_METRICS_PORT is not set")
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        # A training continues without it.
        return Finding(
            ok=True, text=f"port {port} for metrics and progress cannot be used ({error}): free it to see progress"
        )
    return Finding(ok=True, text=f"port {port} for metrics and progress is free")


def of_all(group: Group) -> tuple[Finding, ...]:
    """Checks of all ranks together; the same result on each of them."""
    gathered = group.exchange.gather_bytes(json.dumps(asdict(Versions.own(group.device))).encode())
    total = torch.tensor([float(group.rank)], device=group.device)
    keep_forever(total)
    dist.all_reduce(total)
    expected = group.world_size * (group.world_size - 1) / 2
    return (
        equal([Versions(**json.loads(each)) for each in gathered]),
        Finding(
            ok=total.item() == expected,
            text=f"all_reduce over {group.backend} among {group.world_size} ranks gives {total.item():g}, "
            f"expected {expected:g}",
        ),
    )


def equal(versions: list[Versions]) -> Finding:
    """Whether all ranks have what rank 0 has. Different devices work together, as fast as the slowest."""
    for rank, own in enumerate(versions):
        for name, value in asdict(own).items():
            first = getattr(versions[0], name)
            if value != first:
                text = f"rank {rank} has {name} {value}, but rank 0 has {first}: use the same image and kind of node"
                return Finding(ok=name == "device", text=text)
    return Finding(ok=True, text=f"all {len(versions)} ranks have the same versions and devices")


if __name__ == "__main__":
    main()
