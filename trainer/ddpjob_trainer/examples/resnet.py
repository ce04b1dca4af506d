r"""Trains a ResNet of torchvision on a folder of images.

    python3 -m torch.distributed.launch --nproc-per-node=2 --nnodes=2 --node-rank=0 \
        --master-addr=10.0.0.1 --master-port=1234 resnet.py --data /data/imagenet

The folder has `train/<class>/*.jpg` and `val/<class>/*.jpg`, as torchvision's ImageFolder reads them. With
`--synthetic 512` no folder is read: 512 images are generated, with stripes whose direction is the class. It needs
`ddpjob[vision]`, and runs unchanged as a DDPJob, under torchrun and as a single process, on GPUs and without.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import datasets, models, transforms

from ddpjob_trainer import (
    Group,
    Interval,
    MisuseError,
    Settings,
    configure_logging,
    current_environment,
    process_group,
    seed_everything,
    train,
)
from ddpjob_trainer.examples.classification import cosine, cross_entropy, say_outcome
from ddpjob_trainer.observability.log import say

MODELS: Final = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
CHANNELS: Final = 3
SMALLEST_SIDE: Final = 64
"""A ResNet reduces it to 2 x 2: a BatchNorm needs several values per channel, even in a batch of one image."""
SYNTHETIC_CLASSES: Final = 4
SYNTHETIC_HELD_OUT: Final = 64
STRIPES: Final = 6
NOISE: Final = 0.5
# ImageNet's, the usual ones for normalization.
MEAN: Final = (0.485, 0.456, 0.406)
DEVIATION: Final = (0.229, 0.224, 0.225)
MOMENTUM: Final = 0.9
WEIGHT_DECAY: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Arguments:
    """The program's command line."""

    data: Path | None
    synthetic: int | None
    model: str
    image_size: int
    total_epochs: int
    save_every: int
    batch_size: int
    learning_rate: float
    data_workers: int


@dataclass(frozen=True, slots=True)
class Images:
    """Two parts of a data set that share no image."""

    training: Dataset[Any]
    held_out: Dataset[Any]
    classes: int


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Parse the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="resnet", description="Train a ResNet on a folder of images.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with train/<class>/ and val/<class>/")
    source.add_argument("--synthetic", type=int, metavar="IMAGES", help="number of images to generate for training")
    parser.add_argument("--model", choices=MODELS, default="resnet18")
    parser.add_argument("--image-size", type=int, default=224, help="width and height of the model's input in pixels")
    parser.add_argument("--total-epochs", type=int, default=90, help="number of passes through the data")
    parser.add_argument("--save-every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--learning-rate", type=float, default=0.1, help="for 256 images per step across all processes")
    parser.add_argument("--data-workers", type=int, default=0, help="processes that read images, per training process")
    parsed = Arguments(**vars(parser.parse_args(arguments)))
    if min(parsed.total_epochs, parsed.save_every, parsed.batch_size, parsed.synthetic or 1) < 1:
        parser.error("--total-epochs, --save-every, --batch-size and --synthetic must be at least 1")
    if parsed.image_size < SMALLEST_SIDE:
        parser.error(f"--image-size must be at least {SMALLEST_SIDE}")
    if parsed.data_workers < 0:
        parser.error("--data-workers must be at least 0")
    return parsed


class Stripes(Dataset[Any]):  # type: ignore[misc]  # torch has no types where it is not installed
    """Images of stripes and noise: the direction of the stripes is the class."""

    def __init__(self, images: int, side: int, seed: int) -> None:
        """Args:
        images: how many.
        side: pixels.
        seed: different seeds give different images.
        """
        self._images = images
        self._side = side
        self._seed = seed

    def __len__(self) -> int:
        return self._images

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """An image [3, side, side], normalized, and its class; the same each time."""
        label = index % SYNTHETIC_CLASSES
        random = torch.Generator().manual_seed(self._seed * 1_000_003 + index)
        angle = math.pi * label / SYNTHETIC_CLASSES
        phase = 2 * math.pi * torch.rand(CHANNELS, 1, 1, generator=random)
        across = torch.linspace(0, 2 * math.pi * STRIPES, self._side)
        waves = torch.sin(math.cos(angle) * across + math.sin(angle) * across.unsqueeze(1) + phase)
        return waves + NOISE * torch.randn(waves.shape, generator=random), label


def load_images(arguments: Arguments) -> Images:
    """The images that the command line selects.

    Raises:
        MisuseError: the folder does not have them; the message names what is missing.
    """
    if arguments.synthetic is not None:
        made = (
            Stripes(arguments.synthetic, arguments.image_size, 0),
            Stripes(SYNTHETIC_HELD_OUT, arguments.image_size, 1),
        )
        return Images(*made, SYNTHETIC_CLASSES)
    normal = [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    side = arguments.image_size
    augmented = [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), *normal]
    # An eighth of an image is cropped at its edges, as for published accuracies.
    plain = [transforms.Resize(side * 8 // 7), transforms.CenterCrop(side), *normal]
    folder = arguments.data or Path()
    try:
        training = datasets.ImageFolder(folder / "train", transforms.Compose(augmented))
        held_out = datasets.ImageFolder(folder / "val", transforms.Compose(plain))
    except OSError as reason:
        raise MisuseError(
            f"--data {folder}: {reason}. It needs train/<class>/ and val/<class>/ with images; in a DDPJob mount them "
            "with spec.trainer.volumeMounts and spec.template.spec.volumes"
        ) from reason
    if training.classes != held_out.classes:
        raise MisuseError(f"--data {folder}: train/ and val/ have different classes (folders)")
    return Images(training, held_out, len(training.classes))


class Accuracy:
    """The fraction of held-out images that a model classifies correctly; each rank evaluates its own share."""

    def __init__(self, group: Group, images: Dataset[Any], arguments: Arguments) -> None:
        """Args:
        group: the processes of the training.
        images: the held-out ones.
        arguments: the command line.
        """
        self._group = group
        own = Subset(images, range(group.rank, len(images), group.world_size))
        self._loader = DataLoader(own, batch_size=arguments.batch_size, num_workers=arguments.data_workers)

    def __call__(self, model: nn.Module) -> float:
        """From 0 to 1, the same on all ranks."""
        for buffer in model.buffers():
            # Each rank has its own running means of BatchNorm, and rank 0's are saved.
            dist.broadcast(buffer, src=0)
        right, count = 0.0, 0
        for images, labels in self._loader:
            found = model(images.to(self._group.device)).argmax(1)
            right += float((found == labels.to(self._group.device)).sum())
            count += len(labels)
        total_right, total = self._group.sum(right, count)
        return total_right / total


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train, and print a proof that all processes have trained one model."""
    environment = current_environment()
    arguments = parse_arguments(environment.arguments)
    configure_logging(environment)
    with process_group(environment) as group:
        seed_everything(0)
        images = load_images(arguments)
        if group.first:
            source = f"{arguments.data}" if arguments.synthetic is None else "synthetic images"
            say(f"Dataset {source} | {len(images.training)} to train on, {len(images.held_out)} held out")
        model = models.get_model(arguments.model, num_classes=images.classes).to(group.device)
        # Proportional to the size of the step: arXiv:1706.02677.
        times = arguments.batch_size * group.world_size / 256
        rate = arguments.learning_rate
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
        accuracy = Accuracy(group, images.held_out, arguments)
        train(
            model,
            optimizer,
            cross_entropy,
            images.training,
            Settings(
                total_epochs=arguments.total_epochs,
                batch_size=arguments.batch_size,
                save_every=arguments.save_every,
                data_workers=arguments.data_workers,
                scheduler_interval=Interval.EPOCH,
            ),
            group=group,
            scheduler=cosine(optimizer, arguments.total_epochs, times),
            evaluate=accuracy,
        )
        model.eval()
        with torch.no_grad():
            final = accuracy(model)
        say_outcome(group, model, final, len(images.held_out))


if __name__ == "__main__":
    main()
