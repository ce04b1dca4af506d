"""One run per job over all its attempts, in the files of the real trackers."""

import math
import re
from pathlib import Path

import pytest
from training import alone, whole

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

PROGRAM = """
import os, sys, torch
from ddpjob_trainer import Listener, MLflow, Settings, TensorBoard, WeightsAndBiases, configure_logging
from ddpjob_trainer import current_environment, process_group, train

class Fails(Listener):
    def step_finished(self, step, samples, seconds, data_seconds):
        if os.environ["DDPJOB_ATTEMPT"] == "0" and step == 5:
            raise ValueError("on purpose")

environment = current_environment()
configure_logging(environment)
torch.manual_seed(0)
with process_group(environment) as group:
    model = torch.nn.Linear(2, 1)
    train(
        model, torch.optim.SGD(model.parameters(), lr=0.1),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        dataset=torch.utils.data.TensorDataset(torch.ones(16, 2)),
        settings=Settings(total_epochs=1, batch_size=1, save_every_steps=4, log_every=1),
        group=group, evaluate=lambda _: {"accuracy": 0.5, "f1": 0.25},
        listeners=[TensorBoard(group, sys.argv[1]), MLflow(group), WeightsAndBiases(group, project="p"), Fails()],
    )
print("MLFLOW", group.rank, os.environ.get("MLFLOW_RUN_ID"), flush=True)
print("WANDB", group.rank, os.environ.get("WANDB_RUN_ID"), flush=True)
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return {
        "DDPJOB_NAME": "digits",
        "DDPJOB_NAMESPACE": "team",
        "DDPJOB_UID": "0f1e",
        "DDPJOB_CHECKPOINT_PATH": str(tmp_path / "checkpoints/0f1e"),
        "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path / "wandb"),
        "HOME": str(tmp_path),
    }


def test_attempts_go_on_in_one_run_and_what_was_repeated_is_there_once(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 full runs have it

    (tmp_path / "wandb").mkdir()
    program = ("-c", PROGRAM, str(tmp_path / "tensorboard"))
    failed = alone(*program, variables={**variables, "DDPJOB_ATTEMPT": "0"})
    assert "on purpose" in failed.output
    resumed = whole(2, *program, variables={**variables, "DDPJOB_ATTEMPT": "1"})
    events = EventAccumulator(str(tmp_path / "tensorboard/digits-0f1e"))
    events.Reload()
    losses = events.Scalars("train/loss")
    last = losses[-1].step
    assert [each.step for each in losses] == list(range(1, last + 1))
    assert last > 8
    assert all(math.isfinite(each.value) for each in losses)
    assert [each.value for each in events.Scalars("eval/accuracy")] == [0.5]
    assert [each.value for each in events.Scalars("eval/f1")] == [0.25]
    (run,) = set(re.findall(r"^MLFLOW 0 (\w+)$", resumed.output, re.MULTILINE))
    assert "MLFLOW 1 None" in resumed.output
    (folder,) = [path.parent for path in (tmp_path / "mlruns").rglob("meta.yaml") if path.parent.name == run]
    assert [path.parent.name for path in (tmp_path / "mlruns").glob("*/*/meta.yaml")] == [run]
    steps = [int(line.split()[2]) for line in (folder / "metrics/train/loss").read_text().splitlines()]
    # MLflow keeps both values of a step, and shows the later one.
    assert sorted(set(steps)) == list(range(1, last + 1))
    assert (folder / "tags/ddpjob.attempt").read_text() == "1"
    assert "status: 3" in (folder / "meta.yaml").read_text()
    assert "WANDB 0 0f1e" in resumed.output
    runs = list((tmp_path / "wandb").rglob("run-*.wandb"))
    assert [path.name for path in runs] == ["run-0f1e.wandb"] * 2
    assert all(path.stat().st_size for path in runs)


OWN = """
import os, mlflow
from ddpjob_trainer import mlflow_run, process_group

with process_group() as group:
    if mlflow_run("own") is not None:
        mlflow.set_experiment("own")
        with mlflow.start_run() as run:
            mlflow.log_metric("attempts", float(os.environ["DDPJOB_ATTEMPT"]))
            print("RUN", group.rank, run.info.run_id, flush=True)
            if os.environ["DDPJOB_ATTEMPT"] == "0":
                raise ValueError("on purpose")
"""


def test_a_program_that_uses_mlflow_itself_goes_on_in_one_run(tmp_path: Path, variables: dict[str, str]) -> None:
    failed = alone("-c", OWN, variables={**variables, "DDPJOB_ATTEMPT": "0"})
    assert "on purpose" in failed.output
    resumed = whole(2, "-c", OWN, variables={**variables, "DDPJOB_ATTEMPT": "1"})
    runs = [re.findall(r"^RUN (\d) (\w+)$", each.output, re.MULTILINE) for each in (failed, resumed)]
    assert runs[0] == runs[1] == [("0", runs[0][0][1])]
    (folder,) = [path.parent for path in (tmp_path / "mlruns").glob("*/*/meta.yaml")]
    assert folder.name == runs[0][0][1]
    assert [line.split()[1] for line in (folder / "metrics/attempts").read_text().splitlines()] == ["0.0", "1.0"]
    assert "status: 3" in (folder / "meta.yaml").read_text()


def test_mlflow_does_not_begin_a_run_with_an_id_that_was_chosen_for_it(variables: dict[str, str]) -> None:
    # Otherwise the launcher could set MLFLOW_RUN_ID as it sets WANDB_RUN_ID, and no function would be needed.
    begun = alone("-c", "import mlflow; mlflow.start_run()", variables={**variables, "MLFLOW_RUN_ID": "0" * 32})
    assert begun.code == 1
    assert "not found" in begun.output


def test_what_the_user_has_set_decides(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "wandb").mkdir()
    own = {**variables, "DDPJOB_ATTEMPT": "1", "WANDB_RUN_ID": "mine"}
    training = alone("-c", PROGRAM, str(tmp_path / "tensorboard"), variables=own)
    assert training.code == 0, training.output
    assert "WANDB 0 mine" in training.output


def test_a_package_that_misses_is_named() -> None:
    code = "import sys\nsys.modules['mlflow'] = None\n" + PROGRAM.replace(
        'TensorBoard(group, sys.argv[1]), MLflow(group), WeightsAndBiases(group, project="p")', "MLflow(group)"
    )
    training = alone("-c", code, variables={"DDPJOB_ATTEMPT": "1"})
    assert training.code == 1
    assert "install ddpjob[mlflow]" in training.output
