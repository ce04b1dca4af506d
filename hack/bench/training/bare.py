"""A DDP loop as a careful person writes it by hand, with nothing but torch."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from hack.bench.training.workload import BATCH_SIZE, LEARNING_RATE, LOG_EVERY, build_model


def train(dataset: Dataset[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[int]:
    """Train for one epoch: a step whenever the next value, its number, is taken."""
    rank = dist.get_rank()
    sampler = DistributedSampler(dataset, seed=0)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    sampler.set_epoch(0)
    model.train()
    for step, (images, labels) in enumerate(loader, start=1):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % LOG_EVERY == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        yield step
