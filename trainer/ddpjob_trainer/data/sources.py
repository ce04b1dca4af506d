"""Which source of batches suits a loader that was written for a single process."""

from collections.abc import Iterable
from typing import Any, Final

from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from ddpjob_trainer.data.batch_order import BatchOrder
from ddpjob_trainer.data.loading import Loading
from ddpjob_trainer.data.orders import Order
from ddpjob_trainer.data.source import Source
from ddpjob_trainer.data.streams import Stream, batch_size_of
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

_OPTIONS: Final = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
)


def source_of(loader: Iterable[Any] | Dataset[Any], group: Group, seed: int) -> Source:
    """The batches of a loader, shared between the ranks.

    Of a DataLoader over a data set with indices, the order of the epoch is known in advance: that of its sampler or
    batch sampler. Of anything else only what it yields.

    Args:
        loader: as for a single process.
        group: the processes of the training.
        seed: decides the order of the samples.

    Raises:
        MisuseError: it is a data set, which says nothing about batches.
    """
    if isinstance(loader, Dataset):
        raise MisuseError("a data set has no batches: pass DataLoader(dataset, batch_size=..., shuffle=True)")
    # A subclass may do anything, and StatefulDataLoader keeps what a data set says of itself.
    plain: Any = loader if type(loader) is DataLoader else None
    if plain is None or isinstance(plain.dataset, IterableDataset) or plain.batch_sampler is None:
        return Stream(loader, group, seed)
    return _of_indices(plain, group, seed)


def known_source_of(loader: Any, group: Group, seed: int, batch_size: int) -> Source:  # noqa: ANN401 as below
    """The same, of a loader whose number of batches is known before they are read.

    Args:
        loader: a DataLoader.
        group: the processes of the training.
        seed: decides the order of the samples.
        batch_size: that the training was given besides, which must be the loader's, if it has one.

    Raises:
        MisuseError: the number is not known, or the batch sizes differ.
    """
    if loader.batch_size not in (None, batch_size):
        raise MisuseError(
            f"Settings.batch_size is {batch_size}, but the DataLoader's is {loader.batch_size}: give both the same"
        )
    source = source_of(loader, group, seed)
    if isinstance(source, Stream):
        raise MisuseError(
            f"train must know how many batches there are, which a {type(loader).__name__} of a "
            f"{type(loader.dataset).__name__} does not: write a loop with Session, which takes any loader"
        )
    return source


def check_indices(dataset: object) -> None:
    """Check that a data set has a length and samples by index, which the ranks share.

    Raises:
        MisuseError: it has not.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise MisuseError(
            f"the data set, a {type(dataset).__name__}, has no indices by which train could share it between the ranks "
            "(len(dataset) and dataset[index]): write a loop with Session, which takes any loader"
        )


def _of_indices(loader: Any, group: Group, seed: int) -> Source:  # noqa: ANN401 torch has no types where it is not installed
    options = {name: getattr(loader, name) for name in _OPTIONS}
    if not options["pin_memory_device"]:
        del options["pin_memory_device"]
    if loader.batch_size is None:
        order_of_batches = Order(loader.batch_sampler, group, seed)
        size_of_batches = batch_size_of(loader.batch_sampler)
        return BatchOrder(loader.dataset, order_of_batches, group, seed, options, batch_size=size_of_batches)
    sampler, workers, collate = loader.sampler, options.pop("num_workers"), options.pop("collate_fn")
    order: Order | None = None
    shuffle, size = True, None
    if isinstance(sampler, DistributedSampler):
        # It is for the ranks of this training, or was meant to be: the whole order is the same.
        shuffle, seed = sampler.shuffle, sampler.seed
    elif type(sampler) is SequentialSampler:
        shuffle = False
    elif type(sampler) is not RandomSampler or sampler.replacement or len(sampler) != len(loader.dataset):
        order, size = Order(sampler, group, seed), len(sampler)
    return Loading(
        loader.dataset,
        group,
        batch_size=loader.batch_size,
        seed=seed,
        drop_last=loader.drop_last,
        workers=workers,
        collate_fn=collate,
        shuffle=shuffle,
        order=order,
        size=size,
        options=options,
    )
