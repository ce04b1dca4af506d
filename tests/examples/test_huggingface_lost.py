"""When a rank of Hugging Face's Trainer is killed, all processes start again, and the log says so beforehand."""

from pathlib import Path

import pytest
from launching import launchers

from tests.ports import free_port

PROGRAM = """
import os, signal, tempfile, torch, transformers
from pathlib import Path
from ddpjob_trainer import configure_logging, current_environment, process_group
from ddpjob_trainer.huggingface import train

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        out = self.linear(x).squeeze(1)
        return {"loss": (out - labels).square().mean(), "logits": out}

class Ends(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        mark = Path("killed")
        if group.rank == 1 and state.global_step == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

environment = current_environment()
configure_logging(environment)
generator = torch.Generator().manual_seed(0)
samples = [{"x": torch.randn(4, generator=generator), "labels": torch.zeros(())} for _ in range(32)]
with process_group(environment) as group, tempfile.TemporaryDirectory() as scratch:
    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=scratch, per_device_train_batch_size=2, use_cpu=True, disable_tqdm=True, max_steps=8,
        save_strategy="steps", save_steps=2)
    trainer = transformers.Trainer(model=Model(), args=arguments, callbacks=[Ends], train_dataset=samples)
    train(trainer, group, checkpoint_dir="checkpoints")
    print(f"TRAINED {group.rank} {trainer.state.global_step}", flush=True)
"""


@pytest.mark.full
def test_all_processes_start_again_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with launchers(tmp_path, monkeypatch) as job:
        options = {"PET_MAX_RESTARTS": "1", "DDPJOB_METRICS_PORT": str(free_port())}
        node = job.start(0, 1, job.program(PROGRAM), **options)
        # The second start loads transformers again.
        assert node.end(300) == 0, node.output
        assert (
            "if a rank is killed, all processes start again: Hugging Face's Trainer has a loop of its own"
            in node.output
        )
        assert "all workers restart in their running pods, process restart 1 of 1" in node.output
        assert "resumed in epoch 1 after step 4" in node.output
        assert {line for line in node.output.splitlines() if line.startswith("TRAINED")} == {
            "TRAINED 0 8",
            "TRAINED 1 8",
        }
