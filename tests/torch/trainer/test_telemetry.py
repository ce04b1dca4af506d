"""Metrics and progress of real trainings, and that no reader can disturb one."""

import http.client
import json
import re
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from training import DIGITS, SHORT, ranks_started, together, whole

from ddpjob_trainer.observability.server import MOST_CLIENTS
from tests.ports import free_ports

EPOCHS = 10
STEPS = EPOCHS * 23
PROGRAM = str(Path(__file__).with_name("programs") / "resumable.py")
OPERATOR = {"DDPJOB_NAME": "digits", "DDPJOB_UID": "0b1c", "DDPJOB_ATTEMPT": "1", "DDPJOB_NODE_RANK": "0"}


@pytest.fixture
def base_port() -> int:
    """A port that is free, and the next one too."""
    return free_ports(2)[0]


def get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_each_local_rank_serves_its_own_metrics_and_progress_while_scrapers_hang(
    base_port: int, tmp_path: Path
) -> None:
    file = tmp_path / "progress.json"
    program = (*DIGITS, "--total-epochs", str(EPOCHS), "--batch-size", "32")
    variables = {**OPERATOR, "DDPJOB_METRICS_PORT": str(base_port), "DDPJOB_PROGRESS_FILE": str(file)}
    with ExitStack() as hanging, ranks_started(2, *program, variables=variables) as ranks:
        for each in ranks:
            assert any("Epoch 2 " in line for line in each.output), "the training ended before its second epoch"
        for rank in (0, 1):
            progress = json.loads(get(base_port + rank, "/progress"))
            assert (progress["rank"], progress["worldSize"], progress["attempt"]) == (rank, 2, 1)
            assert (progress["totalEpochs"], progress["totalSteps"], progress["finished"]) == (EPOCHS, STEPS, False)
            assert 2 <= progress["epoch"] <= EPOCHS
            assert progress["step"] >= 23
            assert progress["loss"] > 0
            assert progress["samplesPerSecond"] > 0
            assert progress["etaSeconds"] >= 0
            metrics = {
                sample.name: sample.value
                for family in text_string_to_metric_families(get(base_port + rank, "/metrics"))
                for sample in family.samples
                if sample.labels.get("ddpjob") == "digits" and sample.labels["rank"] == str(rank)
            }
            assert metrics["ddpjob_trainer_steps_total"] >= 23
            assert metrics["ddpjob_trainer_samples_total"] > 22 * 32
            assert metrics["ddpjob_trainer_step_duration_seconds_count"] == metrics["ddpjob_trainer_steps_total"]
            assert metrics["ddpjob_trainer_gradient_norm"] > 0
            assert metrics["ddpjob_trainer_data_wait_seconds_total"] > 0
            assert metrics["ddpjob_trainer_planned_steps"] == STEPS
            assert metrics["ddpjob_trainer_local_seconds_total"] > metrics["ddpjob_trainer_data_wait_seconds_total"]
            assert "ddpjob_trainer_gpu_memory_allocated_bytes" not in metrics

        def scraper(say: bytes) -> None:
            client = hanging.enter_context(socket.create_connection(("127.0.0.1", base_port), timeout=30))
            client.sendall(say)

        scraper(b"GET /metrics HTTP/1.1\r\n")
        scraper(b"GET /metrics HTTP/1.1\r\n\r\n")
        for _ in range(MOST_CLIENTS + 2):
            scraper(b"")
        # They are still connected when all epochs are done.
        ends = [each.end() for each in ranks]
        assert [code for code, _ in ends] == [0, 0], ends
        assert "Accuracy 0.9" in ends[0][1]

    # Rank 0's alone, and its last.
    last = json.loads(file.read_text())
    assert (last["rank"], last["finished"], last["epoch"], last["totalEpochs"]) == (0, True, EPOCHS, EPOCHS)
    assert (last["step"], last["totalSteps"], last["etaSeconds"]) == (STEPS, STEPS, 0)
    assert last["accuracy"] > 0.9
    # The launcher gives it a third of the 2,048 bytes of its report.
    assert len(file.read_bytes()) < 680


def test_a_port_in_use_is_logged_once_and_training_continues(base_port: int) -> None:
    with closing(socket.create_server(("", base_port))):
        training = whole(1, *DIGITS, *SHORT, variables={"DDPJOB_METRICS_PORT": str(base_port)})
    assert training.output.count(f"cannot serve metrics and progress on port {base_port}") == 1


def test_after_a_failure_the_file_says_how_far_the_training_came(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    variables = {"DDPJOB_PROGRESS_FILE": str(file)}
    failed = together(1, PROGRAM, str(tmp_path / "checkpoints"), "--fail-at-step", "5", variables=variables)
    assert failed.code == 1
    assert "failed on purpose" in failed.output
    progress = json.loads(file.read_text())
    assert (progress["step"], progress["lastCheckpointStep"], progress["finished"]) == (5, 3, False)


def test_a_loss_that_is_not_a_number_is_reported_as_text(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    variables = {"DDPJOB_PROGRESS_FILE": str(file)}
    whole(1, PROGRAM, str(tmp_path / "checkpoints"), "--nan", "--epochs", "1", variables=variables)
    progress = json.loads(file.read_text())
    assert (progress["loss"], progress["lossText"]) == (None, "nan")


def test_a_rank_that_waits_for_data_for_ever_shows_where_and_who_waits_for_it(base_port: int, tmp_path: Path) -> None:
    variables = {"DDPJOB_METRICS_PORT": str(base_port), "DDPJOB_PROGRESS_DEADLINE_SECONDS": "2"}
    dumped = {0: "step", 1: "data"}
    with ranks_started(2, PROGRAM, str(tmp_path), "--hang-rank", "1", variables=variables) as ranks:
        for rank, activity in dumped.items():
            head = rf"rank {rank} has not finished a step for \d+ s: step 2 is done, activity {activity} for \d+ s"
            assert any(re.match(head, line) for line in ranks[rank].output), "the training ended by itself"
        stack = ""
        while "read_from_a_volume_that_is_gone" not in stack:
            line = ranks[1].output.readline()
            assert line, "the training ended by itself"
            stack += line
        assert "has finished no step" not in stack, "it is reported once"
        for rank in (0, 1):
            progress = json.loads(get(base_port + rank, "/progress"))
            assert (progress["step"], progress["activity"]) == (2, dumped[rank])
            assert progress["secondsSinceStep"] >= progress["activitySeconds"] > 1
            assert progress["processRestarts"] == 0
            assert progress["quietSeconds"] >= 2
        assert "read_from_a_volume_that_is_gone" in json.loads(get(base_port + 1, "/progress"))["stack"]


def test_an_evaluation_longer_than_the_deadline_is_not_a_hang(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    variables = {"DDPJOB_PROGRESS_DEADLINE_SECONDS": "2", "DDPJOB_PROGRESS_FILE": str(file)}
    program = (PROGRAM, str(tmp_path / "checkpoints"), "--epochs", "1", "--evaluation-seconds", "5")
    done = whole(1, *program, variables=variables)
    assert "has finished no step" not in done.output
    assert json.loads(file.read_text())["activity"] == "finished"
