"""What a Trainer's user may ask for: data of unknown length, saves by steps, arguments that are obeyed or refused."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from training import Training, alone, checkpoints_in, together, whole

# Ranks start within seconds of one another, and each takes some for its imports.
pytestmark = pytest.mark.timeout(600)

# Every step leaves its mark in the weights, in the order of the steps.
PROGRAM = """
import json, os, sys, tempfile, torch, transformers
from ddpjob_trainer import Listener, configure_logging, current_environment, process_group
from ddpjob_trainer.huggingface import train
from ddpjob_trainer.process.environment import MisuseError

asked = json.loads(sys.argv[1])
trained_steps = [0]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        out = self.linear(torch.nn.functional.dropout(x, 0.2, self.training)).squeeze(1)
        spoilt = self.training and trained_steps[0] == asked.get("spoilt_after", -1)
        spoilt = spoilt and group.rank in asked.get("spoilt_ranks", [0, 1])
        return {"loss": (out - labels).square().mean() * (float("nan") if spoilt else 1), "logits": out}

def samples(count, epoch=0):
    generator = torch.Generator().manual_seed(epoch)
    return [{"x": torch.randn(4, generator=generator), "labels": torch.randn((), generator=generator)}
            for _ in range(count)]

class Stream(torch.utils.data.IterableDataset):
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __iter__(self):
        return iter(samples(asked["samples"], self.epoch))

class Ends(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        trained_steps[0] = state.global_step
        if state.global_step == asked.get("dies_after"):
            os._exit(9)

class Saved(Listener):
    def not_finite(self, step, what):
        print(f"not finite {step}", flush=True)
    def checkpoint_saved(self, step, pause_seconds):
        print(f"saved {step}", flush=True)

def run(group, given, options):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = transformers.TrainingArguments(**{
            "output_dir": scratch, "per_device_train_batch_size": 2, "use_cpu": True, "disable_tqdm": True,
            "learning_rate": 0.05, "optim": "sgd", "logging_steps": 1, **given})
        patience = asked.get("patience")
        stops = [transformers.EarlyStoppingCallback(patience)] if patience else []
        trainer = transformers.Trainer(
            model=Model(), args=arguments, callbacks=[Ends, *stops],
            train_dataset=Stream() if asked.get("stream") else samples(asked["samples"]), eval_dataset=samples(8),
            compute_metrics=lambda told: {"peak": -abs(trainer.state.global_step - 4)})
        trainer.remove_callback(transformers.PrinterCallback)
        # Before, the Trainer would already look for the hub, for a package, and for several GPUs.
        for name in {"push_to_hub", "deepspeed", "parallelism_config"} & options.keys():
            setattr(arguments, name, options.pop(name))
        train(trainer, group, listeners=[Saved()], **options)
        weights = [float(each) for each in trainer.model.linear.weight.detach().flatten()]
        print(f"scheduled {trainer.lr_scheduler.last_epoch}", flush=True)
        print(f"trained {trainer.state.global_step} {[each.hex() for each in weights]}", flush=True)
        assert not os.listdir(scratch), os.listdir(scratch)

environment = current_environment()
configure_logging(environment)
with process_group(environment) as group:
    for given, options in asked["runs"]:
        try:
            run(group, given, options)
        except MisuseError as refused:
            print(f"refused {refused}", flush=True)
"""


def program(**asked: Any) -> Sequence[str]:
    return ("-c", PROGRAM, json.dumps(asked))


def ends(training: Training) -> set[str]:
    return set(re.findall(r"^trained .*$", training.output, re.MULTILINE))


def saved(training: Training) -> list[int]:
    return [int(step) for step in re.findall(r"^saved (\d+)$", training.output, re.MULTILINE)]


def steps_in(folder: Path) -> list[int]:
    return [int(name[5:14]) for name in checkpoints_in(folder)]


def test_a_loss_that_is_not_finite_ends_the_training_before_it_is_saved(tmp_path: Path) -> None:
    given = {"max_steps": 8, "save_steps": 2, "save_strategy": "steps"}
    asked = {"samples": 20, "spoilt_after": 4, "spoilt_ranks": [1]}
    spoilt = together(2, *program(**asked, runs=[[given, {"checkpoint_dir": str(tmp_path)}]]))
    assert spoilt.code == 1, spoilt.output
    assert "loss became nan at step 5 on rank 1; last finite checkpoint: step 4" in spoilt.output
    assert steps_in(tmp_path) == [2, 4]


def test_a_loss_that_is_not_finite_ends_a_training_that_saves_nothing_too() -> None:
    # The Trainer reports the mean of other losses in place of one that is not finite.
    given = {"max_steps": 8, "save_strategy": "no", "logging_steps": 100, "gradient_accumulation_steps": 2}
    spoilt = alone(*program(samples=40, runs=[[given, {}]], spoilt_after=4))
    assert spoilt.code == 1, spoilt.output
    assert "loss became nan at step 5 on rank 0; no checkpoint was saved" in spoilt.output
    assert "not finite 8" in spoilt.output, "listeners hear of it"


def test_a_step_that_is_not_finite_is_left_out_or_only_said_if_the_program_says_so(tmp_path: Path) -> None:
    given = {"max_steps": 8, "save_steps": 2, "save_strategy": "steps", "weight_decay": 0.1, "optim": "adamw_torch"}
    folders = {policy: str(tmp_path / policy) for policy in ("skip", "warn")}
    runs = [[given, {"checkpoint_dir": folder, "on_nan": policy}] for policy, folder in folders.items()]
    asked = {"samples": 40, "spoilt_after": 4, "spoilt_ranks": [1]}
    spoilt = whole(2, *program(**asked, runs=runs))
    assert "step 5 is left out: loss became nan at step 5 on rank 1" in spoilt.output
    assert steps_in(tmp_path / "skip") == [4, 6, 8]
    assert steps_in(tmp_path / "warn") == [2, 4]
    assert len(re.findall("no checkpoint at step", spoilt.output)) == 2, "6 and 8, and not each log step"
    weights = {"nan" in end for end in ends(spoilt)}
    assert weights == {True, False}
    assert re.findall(r"^scheduled (\d+)$", spoilt.output, re.MULTILINE) == ["7", "8"] * 2


def test_a_stream_that_ends_twice_within_max_steps_goes_on_where_it_was_with_the_same_numbers(tmp_path: Path) -> None:
    # Each rank reads 5 batches in a pass: step 7 is the second of the second pass.
    asked = {"stream": True, "samples": 20}
    given = {"max_steps": 12, "save_steps": 3}
    undisturbed = whole(2, *program(**asked, runs=[[given, {"checkpoint_dir": str(tmp_path / "undisturbed")}]]))
    assert len(ends(undisturbed)) == 1, undisturbed.output
    folder = tmp_path / "killed"
    runs = [[given, {"checkpoint_dir": str(folder), "asynchronous": True}]]
    killed = together(2, *program(**asked, runs=runs, dies_after=8))
    assert killed.code == 9, killed.output
    assert steps_in(folder)[-1] in (3, 6)
    resumed = whole(2, *program(**asked, runs=runs * 2))
    assert "resumed in epoch" in resumed.output
    assert ends(resumed) == ends(undisturbed)
    assert saved(resumed)[-1] == 12
    assert steps_in(folder) == [6, 9, 12]
    # A second training in the process would find it complete, and do nothing.
    assert "refused this process has already trained with the checkpoints in" in resumed.output


@pytest.mark.full
def test_a_training_that_is_complete_makes_no_further_step(tmp_path: Path) -> None:
    for asked in ({"stream": True, "samples": 10}, {"samples": 10}):
        # 5 steps a pass: it ends in the middle of one.
        runs = [[{"max_steps": 7}, {"checkpoint_dir": str(tmp_path / str(len(asked)))}]]
        first, again = (alone(*program(**asked, runs=runs)) for _ in range(2))
        assert (first.code, again.code) == (0, 0), again.output
        assert ends(first) == ends(again)


REFUSED = {
    "enable_jit_checkpoint": True,
    "resume_from_checkpoint": "elsewhere",
    "save_on_each_node": True,
    "save_only_model": True,
    "auto_find_batch_size": True,
    "ddp_timeout": 60,
    "ddp_backend": "nccl",
}


def test_arguments_are_obeyed_or_refused_by_name(tmp_path: Path) -> None:
    steps = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 1, "eval_strategy": "no"}
    best = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "peak"}
    folders = [str(tmp_path / name) for name in ("steps", "epoch", "best", "no")]
    runs: list[Any] = [
        # 8 steps an epoch.
        [{**steps, "save_total_limit": 2}, {"checkpoint_dir": folders[0]}],
        [{"save_strategy": "epoch", "num_train_epochs": 2}, {"checkpoint_dir": folders[1]}],
        [{**best, "num_train_epochs": 1, "save_total_limit": 1}, {"checkpoint_dir": folders[2]}],
        [{"save_strategy": "no", "max_steps": 12}, {"checkpoint_dir": folders[3]}],
        [{**steps, "save_strategy": "no"}, {}],
    ]
    # The best evaluation of those whose step is saved.
    loaded = {**best, "save_strategy": "steps", "save_steps": 2, "num_train_epochs": 1, "load_best_model_at_end": True}
    runs += [[{**loaded, "save_total_limit": 1}, {"checkpoint_dir": str(tmp_path / "loaded")}]]
    runs += [[{**steps, name: value}, {}] for name, value in REFUSED.items()]
    runs += [[steps, {"push_to_hub": True}], [steps, {"save_every": 2}], [loaded, {}]]
    training = alone(*program(samples=16, runs=runs))
    assert training.code == 0, training.output
    assert saved(training) == [2, 4, 6, 8, *(8, 16), *(1, 2, 3, 4, 8), *(8, 12), *(2, 4, 6, 8)]
    # The best one stays.
    assert [steps_in(Path(folder)) for folder in folders] == [[6, 8], [8, 16], [4, 8], [8, 12]]
    assert "best step: 4 (peak 0" in training.output
    file = next((tmp_path / "loaded").glob("step-000000004.*")) / "model.safetensors"
    best_weights = [float(each).hex() for each in load_file(file)["linear.weight"].flatten()]
    assert f"trained 8 {best_weights}" in training.output
    refused = re.findall(r"^refused (.*)$", training.output, re.MULTILINE)
    for name, message in zip(
        [*REFUSED, "push_to_hub", "save_strategy", "load_best_model_at_end"], refused, strict=True
    ):
        assert f"TrainingArguments.{name}" in message


def test_ranks_that_would_not_hold_the_whole_model_are_refused_by_name() -> None:
    zero: dict[str, Any] = {"zero_optimization": {"stage": 1}}
    runs = [[{"fsdp": True}, {}], [{}, {"parallelism_config": {"tp_size": 2}}], [{}, {"deepspeed": zero}]]
    training = whole(2, *program(samples=16, runs=runs))
    refused = re.findall(r"^refused TrainingArguments.(\w+) is not supported: only Dist", training.output, re.MULTILINE)
    assert sorted(refused) == ["deepspeed"] * 2 + ["fsdp"] * 2 + ["parallelism_config"] * 2, training.output


@pytest.mark.full
def test_early_stopping_counts_on_after_a_resume_that_restores_callbacks(tmp_path: Path) -> None:
    # The evaluation at step 4 is the best one.
    given = {"restore_callback_states_from_checkpoint": True, "save_steps": 2, "max_steps": 32, "eval_steps": 2}
    given |= {"eval_strategy": "steps", "metric_for_best_model": "peak"}
    asked = {"samples": 16, "patience": 3, "runs": [[given, {"checkpoint_dir": str(tmp_path)}]]}
    assert alone(*program(**asked, dies_after=9)).code == 9
    resumed = alone(*program(**asked))
    assert "after step 8" in resumed.output
    assert [end.split()[1] for end in ends(resumed)] == ["10"], resumed.output
