"""What uses accelerate with its defaults trains one model, however many processes the launcher starts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, launchers

pytestmark = pytest.mark.timeout(600)

# 64 samples, 2 per process and step: 16 steps of two processes, 32 of one that is alone.
TRAINER = """
import json, torch, torch.distributed as dist, transformers

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        predicted = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(predicted, labels), "logits": predicted}

torch.manual_seed(0)
data = [{"x": torch.ones(1) * number, "labels": torch.zeros(1)} for number in range(64)]
arguments = transformers.TrainingArguments(
    "/tmp/output", num_train_epochs=1, per_device_train_batch_size=2, save_strategy="no", report_to="none",
    disable_tqdm=True,
)
trainer = transformers.Trainer(model=Model(), args=arguments, train_dataset=data)
steps = trainer.train().global_step
weights = [None] * dist.get_world_size()
dist.all_gather_object(weights, trainer.model.layer.weight.item())
print(json.dumps({"backend": dist.get_backend(), "steps": steps, "weights": weights}) + "\\n", end="")
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def test_transformers_trainer_with_its_defaults_trains_one_model(job: Job) -> None:
    node = job.start(0, 1, job.program(TRAINER), HF_HUB_OFFLINE="1")
    assert node.end(300) == 0, node.output
    seen = [json.loads(line) for line in node.output.splitlines() if line.startswith('{"backend"')]
    assert [(each["backend"], each["steps"], len(set(each["weights"]))) for each in seen] == [("gloo", 16, 1)] * 2
    assert node.report == {"exitCode": 0}
