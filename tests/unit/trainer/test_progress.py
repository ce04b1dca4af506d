"""The answer of /progress and the file that outlives the process."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.observability.progress import Progress, ProgressFile
from ddpjob_trainer.process.activity import Activity

RUNNING = Progress(
    rank=0,
    world_size=4,
    attempt=1,
    epoch=7,
    total_epochs=20,
    step=210,
    total_steps=600,
    loss=0.0831,
    samples_per_second=1234.5,
    seconds_per_step=0.1,
    learning_rate=0.001,
    last_step_time=1_700_000_000.25,
    last_checkpoint_step=180,
    activity=Activity.DATA,
    activity_seconds=1.23456,
    seconds_since_step=1.5,
    process_restarts=2,
)


def test_progress_reads_as_the_operator_expects_it() -> None:
    assert json.loads(RUNNING.as_json()) == {
        "epoch": 7,
        "totalEpochs": 20,
        "step": 210,
        "totalSteps": 600,
        "loss": 0.0831,
        "samplesPerSecond": 1234.5,
        "etaSeconds": 39.0,
        "learningRate": 0.001,
        "lastStepTime": "2023-11-14T22:13:20.250Z",
        "lastCheckpointStep": 180,
        "worldSize": 4,
        "rank": 0,
        "attempt": 1,
        "finished": False,
        "activity": "data",
        "activitySeconds": 1.235,
        "secondsSinceStep": 1.5,
        "quietSeconds": 0.0,
        "processRestarts": 2,
    }


def test_before_the_first_step_what_is_unknown_is_null() -> None:
    raw = json.loads(Progress(rank=3, world_size=4, attempt=0).as_json())
    assert (raw["step"], raw["loss"], raw["etaSeconds"], raw["lastStepTime"]) == (0, None, None, None)
    assert (raw["activity"], raw["secondsSinceStep"], raw["processRestarts"]) == ("starting", None, 0)
    assert "lossText" not in raw
    assert "accuracy" not in raw


@pytest.mark.parametrize(("loss", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_a_loss_that_json_cannot_hold_is_null_and_given_as_text(loss: float, text: str) -> None:
    raw = json.loads(Progress(rank=0, world_size=1, attempt=0, loss=loss).as_json())
    assert raw["loss"] is None
    assert raw["lossText"] == text


@given(st.floats(), st.floats(), st.floats(), st.floats(), st.floats())
def test_whatever_is_measured_the_answer_is_strict_json(a: float, b: float, c: float, d: float, e: float) -> None:
    progress = Progress(
        rank=0,
        world_size=1,
        attempt=0,
        total_steps=9,
        loss=a,
        samples_per_second=b,
        seconds_per_step=c,
        learning_rate=d,
        accuracy=e,
    )
    json.loads(progress.as_json(), parse_constant=lambda name: pytest.fail(f"{name} is not valid JSON"))


def test_at_the_end_nothing_is_left_to_wait_for() -> None:
    done = Progress(rank=0, world_size=1, attempt=0, step=5, total_steps=5, finished=True)
    raw = json.loads(done.as_json())
    assert (raw["etaSeconds"], raw["finished"]) == (0.0, True)


def test_the_file_is_written_once_a_second_and_always_at_the_end(tmp_path: Path) -> None:
    now = 100.0
    path = tmp_path / "progress.json"
    file = ProgressFile(path, lambda: now)

    def step(number: int, *, last: bool = False) -> int:
        file.write(Progress(rank=0, world_size=1, attempt=0, step=number), last=last)
        shown: int = json.loads(path.read_text())["step"]
        return shown

    assert step(1) == 1
    now = 100.9
    assert step(2) == 1
    now = 101.0
    assert step(3) == 3
    assert step(4) == 3
    assert step(5, last=True) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["progress.json"]
