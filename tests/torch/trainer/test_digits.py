"""The first program: it learns, and all its processes train one model."""

import re

import pytest
from training import DIGITS, SHORT, TORCHRUN, Training, alone, in_interpreters, succeed, torchrun, whole


def one_model_of_four(training: Training) -> bool:
    return training.world_sizes == {0: 4, 1: 4, 2: 4, 3: 4} and len(set(training.digests.values())) == 1


@pytest.fixture(scope="module")
def short() -> Training:
    return succeed(torchrun(4, *DIGITS, *SHORT))


# tests/kind/test_training.py has the same in pods.
@pytest.mark.full
def test_twenty_epochs_on_four_processes_recognise_at_least_97_of_100_digits_never_seen() -> None:
    training = whole(4, *DIGITS, "--total-epochs", "20", "--save-every", "5", "--batch-size", "32", variables=TORCHRUN)
    assert one_model_of_four(training)
    accuracy = re.findall(r"^Accuracy (\d\.\d{4}) on 360 held-out images$", training.output, re.MULTILINE)
    assert len(accuracy) == 1
    assert float(accuracy[0]) >= 0.97
    lines = re.findall(r"^\[CPU\d\] Epoch \d+ \| Batchsize: 32 \| Steps: 12$", training.output, re.MULTILINE)
    assert sorted(lines) == sorted(
        f"[CPU{rank}] Epoch {epoch} | Batchsize: 32 | Steps: 12" for rank in range(4) for epoch in range(1, 21)
    )


@pytest.mark.full
def test_the_same_command_gives_the_same_parameters_and_half_of_the_data_gives_others(short: Training) -> None:
    assert one_model_of_four(short)
    assert succeed(torchrun(4, *DIGITS, *SHORT)).digest == short.digest
    half = succeed(torchrun(4, *DIGITS, *SHORT, "--data-fraction", "0.5"))
    assert one_model_of_four(half)
    assert half.digest != short.digest


def test_lone_processes_do_not_pass_for_one_training() -> None:
    lone = alone(*DIGITS, *SHORT)
    assert lone.code == 0, lone.output
    assert lone.world_sizes == {0: 1}
    assert not one_model_of_four(lone)


def test_lone_processes_in_a_job_of_several_nodes_refuse_to_train() -> None:
    lone = alone(*DIGITS, *SHORT, variables={"DDPJOB_NODES": "2"})
    assert lone.code == 1
    assert "it would train alone" in lone.output


# tests/torch/launcher/test_launchers.py has the launcher, with less to train.
@pytest.mark.full
def test_the_deprecated_launcher_trains_as_well() -> None:
    launch = ["python3", "-m", "torch.distributed.launch", "--nproc-per-node", "2", "--master-port", "29555"]
    assert succeed([*launch, *DIGITS, *SHORT]).world_sizes == {0: 2, 1: 2}


def test_plain_python_trains_with_the_places_in_the_environment() -> None:
    first, second = in_interpreters(2, *DIGITS, *SHORT)
    both = Training(0, first.output + second.output)
    assert (first.code, second.code) == (0, 0), both.output
    assert both.world_sizes == {0: 2, 1: 2}
    assert both.digest
