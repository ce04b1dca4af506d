"""Hugging Face's Trainer on MNIST's images, as a DDPJob trains: shown, saved, stopped and resumed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from training import Training, checkpoints_in, environment, ranks_started, run, succeed, together, torchrun, whole

from tests.ports import free_port

PROGRAM = ("-m", "ddpjob_trainer.examples.huggingface_mnist")
BUNDLED = (*PROGRAM, "--dataset", "bundled")
# Ranks start within seconds of one another, and each takes some for its imports.
pytestmark = pytest.mark.timeout(600)


def accuracy(training: Training) -> float:
    found = re.findall(r"^Accuracy (\d\.\d+) on 1000 held-out images$", training.output, re.MULTILINE)
    assert len(found) == 1, training.output
    return float(found[0])


@pytest.mark.full
def test_four_processes_of_a_node_learn_real_images_and_show_how_far_they_are(tmp_path: Path) -> None:
    variables = {
        "DDPJOB_PROGRESS_FILE": str(tmp_path / "progress.json"),
        "DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid"),
    }
    training = succeed(torchrun(4, *BUNDLED, "--total-epochs", "4", "--batch-size", "16"), variables)
    assert "Dataset bundled | 4000 images to train on, 1000 held out" in training.output
    assert training.world_sizes == dict.fromkeys(range(4), 4)
    assert training.digest
    assert accuracy(training) > 0.9
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["epoch"], progress["totalEpochs"], progress["step"], progress["totalSteps"]) == (4, 4, 252, 252)
    assert (progress["finished"], progress["lastCheckpointStep"]) == (True, 252)
    assert 0 < progress["loss"] < 0.5
    assert progress["samplesPerSecond"] > 0
    assert progress["accuracy"] == pytest.approx(accuracy(training), abs=1e-4)
    assert checkpoints_in(tmp_path / "uid") == [f"step-{step:09d}.attempt-0" for step in (126, 189, 252)]


@pytest.mark.full
def test_two_nodes_that_meet_at_a_master_address_train_one_model() -> None:
    port = free_port()
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--nnodes=2"]
    launch += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    nodes = [
        subprocess.Popen(
            [*launch, f"--node-rank={node}", *BUNDLED, "--total-epochs", "1"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in (0, 1)
    ]
    outputs = [node.communicate()[0] for node in nodes]
    both = Training(max(node.returncode for node in nodes), "".join(outputs))
    assert both.code == 0, both.output
    assert both.world_sizes == dict.fromkeys(range(4), 4)
    assert both.digest


def test_one_rank_asked_to_stop_stops_all_after_one_step_and_the_same_model_comes_of_the_rest(tmp_path: Path) -> None:
    program = (*BUNDLED, "--total-epochs", "1", "--batch-size", "16", "--checkpoint-dir")
    undisturbed = whole(2, *program, str(tmp_path / "undisturbed"))
    folder = tmp_path / "stopped"
    with ranks_started(2, *program, str(folder)) as (first, second):
        assert any("step 20/" in line for line in first.output)
        second.terminate()
        ends = [first.end(), second.end()]
    assert [code for code, _ in ends] == [143, 143], ends
    step = int(re.findall(r"stop requested: all ranks stop after step (\d+) \(saved\)", ends[0][1])[0])
    assert checkpoints_in(folder)[-1] == f"step-{step:09d}.attempt-0"
    refused = together(1, *program, str(folder))
    assert refused.code == 1
    assert "the checkpoint was saved by 2 processes" in refused.output
    progress = tmp_path / "progress.json"
    resumed = whole(2, *program, str(folder), variables={"DDPJOB_PROGRESS_FILE": str(progress)})
    assert f"after step {step}\n" in resumed.output
    assert min(resumed.losses) > step
    assert resumed.digest == undisturbed.digest
    assert accuracy(resumed) == accuracy(undisturbed)
    # After training the program evaluates once more, which must not count as a stalled training.
    assert json.loads(progress.read_text())["activity"] == "finished"


ENDS_EARLY = """
import sys, torch, transformers
from ddpjob_trainer import configure_logging, current_environment, process_group
from ddpjob_trainer.huggingface import train

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
    def forward(self, x, labels):
        return {"loss": self.linear(x).square().mean(), "logits": x}

environment = current_environment()
configure_logging(environment)
with process_group(environment) as group:
    data = [{"x": torch.ones(1), "labels": torch.zeros(1)}] * 8
    arguments = transformers.TrainingArguments(
        output_dir=sys.argv[1], num_train_epochs=9, per_device_train_batch_size=4, eval_strategy="epoch",
        save_strategy="no", metric_for_best_model="constant", report_to="none", use_cpu=True, disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=Model(), args=arguments, train_dataset=data, eval_dataset=data,
        compute_metrics=lambda _: {"constant": 1.0},
        callbacks=[transformers.EarlyStoppingCallback(early_stopping_patience=2)],
    )
    train(trainer, group, save_every=5)
"""


@pytest.mark.full
def test_a_training_that_a_callback_ends_is_complete_and_saved_between_two_saves(tmp_path: Path) -> None:
    variables = {
        "DDPJOB_PROGRESS_FILE": str(tmp_path / "progress.json"),
        "DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid"),
    }
    succeed([sys.executable, "-c", ENDS_EARLY, str(tmp_path / "output")], variables)
    assert checkpoints_in(tmp_path / "uid") == ["step-000000006.attempt-0"]
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["epoch"], progress["totalEpochs"], progress["step"], progress["totalSteps"]) == (3, 3, 6, 6)
    assert (progress["finished"], progress["lastCheckpointStep"]) == (True, 6)


@pytest.mark.full
def test_images_as_the_hub_stores_them_train_a_single_process(tmp_path: Path) -> None:
    # Here and not above: they take each of pytest's processes seconds.
    from datasets import Dataset, Features, Image  # noqa: PLC0415

    from ddpjob_trainer.examples.huggingface_mnist import bundled_images  # noqa: PLC0415

    # A folder of that name is read where the hub would be: pictures in Parquet files.
    features = Features(image=Image(), label=bundled_images()["train"].features["label"])
    for part, images in bundled_images().items():
        few = images.with_format("numpy")[:200]
        stored = Dataset.from_dict(
            {"image": list(few["image"].astype("uint8")), "label": few["label"]}, features=features
        )
        stored.to_parquet(tmp_path / "ylecun/mnist/mnist" / f"{part}-00000-of-00001.parquet")
    training = succeed(["env", f"--chdir={tmp_path}", sys.executable, *PROGRAM, "--total-epochs", "2"])
    assert "Dataset mnist | 200 images to train on, 200 held out" in training.output
    losses = [float(loss) for loss in training.losses.values()]
    assert losses[-1] < losses[0]


def test_a_hub_that_cannot_be_reached_is_named_with_what_to_do_and_nothing_else_is_trained_on() -> None:
    training = run([sys.executable, *PROGRAM], {"HF_HUB_OFFLINE": "1"})
    assert training.code == 1
    assert "ylecun/mnist cannot be loaded from Hugging Face's hub" in training.output
    assert "--dataset bundled" in training.output
    assert "Dataset " not in training.output
