"""A resumed training is the uninterrupted one."""

import re
from collections import Counter
from pathlib import Path

import pytest
from training import DIGITS, Training, checkpoints_in, together, whole

SIZE = 102


@pytest.fixture(scope="module")
def program() -> str:
    return str(Path(__file__).with_name("programs") / "resumable.py")


@pytest.fixture(scope="module")
def uninterrupted(program: str, tmp_path_factory: pytest.TempPathFactory) -> Training:
    return whole(2, program, str(tmp_path_factory.mktemp("uninterrupted")))


def read(training: Training, until: int) -> dict[int, Counter[int]]:
    """Epoch to how often all ranks together have read each sample, in steps up to this one."""
    found: dict[int, Counter[int]] = {}
    epochs: dict[str, int] = {}
    pattern = re.compile(r"RANK (\d+) (?:EPOCH (\d+) STEPS|STEP (\d+) READ \[(.*)\])")
    for rank, epoch, step, samples in pattern.findall(training.output):
        if epoch:
            epochs[rank] = int(epoch)
        elif int(step) <= until:
            found.setdefault(epochs[rank], Counter()).update(map(int, samples.split(", ")))
    return found


def test_killed_in_the_middle_of_an_epoch_the_same_loss_curve_goes_on_bit_for_bit(
    program: str, tmp_path: Path, uninterrupted: Training
) -> None:
    killed = together(2, program, str(tmp_path), "--die-at-step", "9")
    assert killed.code != 0
    resumed = whole(2, program, str(tmp_path))
    assert min(resumed.losses) == 10
    both = {**killed.losses, **resumed.losses}
    assert list(uninterrupted.losses) == list(range(1, 22))
    assert both == uninterrupted.losses
    assert resumed.digest == uninterrupted.digest


def test_resumed_with_another_number_of_ranks_no_sample_is_lost_or_read_twice(program: str, tmp_path: Path) -> None:
    killed = together(2, program, str(tmp_path), "--die-at-step", "3")
    resumed = whole(3, program, str(tmp_path), "--epochs", "2")
    assert resumed.world_sizes == {0: 3, 1: 3, 2: 3}
    # Step 3 is the saved one: the ranks that were not killed at once may have read ahead of it.
    first_epoch = read(killed, until=3)[1] + read(resumed, until=99)[1]
    assert first_epoch == Counter(range(SIZE))
    assert read(resumed, until=99)[2] == Counter(range(SIZE))


def test_the_same_curve_goes_on_in_another_job_and_a_name_without_checkpoints_stops_all_ranks(
    program: str, tmp_path: Path, uninterrupted: Training
) -> None:
    def job(name: str, **more: str) -> dict[str, str]:
        return {"DDPJOB_NAME": name, "DDPJOB_UID": f"uid-of-{name}", **more}

    killed = together(2, program, str(tmp_path), "--die-at-step", "9", variables=job("first"))
    resumed = whole(2, program, str(tmp_path), variables=job("second", DDPJOB_RESUME_FROM="first"))
    assert {**killed.losses, **resumed.losses} == uninterrupted.losses

    refused = together(2, program, str(tmp_path), variables=job("third", DDPJOB_RESUME_FROM="typo"))
    assert refused.code != 0
    assert refused.losses == {}
    assert refused.output.count("jobs with checkpoints there: first, second") == 2


def test_a_corrupt_and_a_truncated_newest_checkpoint_fall_back_loudly_and_end_in_the_same_parameters(
    tmp_path: Path,
) -> None:
    command = (*DIGITS, "--total-epochs", "3", "--save-every", "1", "--checkpoint-dir", str(tmp_path))
    first = whole(2, *command, variables={"DDPJOB_UID": "0b1c", "DDPJOB_ATTEMPT": "0"})
    names = checkpoints_in(tmp_path / "0b1c")
    assert names == ["step-000000023.attempt-0", "step-000000046.attempt-0", "step-000000069.attempt-0"]
    corrupt = tmp_path / "0b1c" / names[-1] / "model.safetensors"
    content = bytearray(corrupt.read_bytes())
    content[-1] ^= 1
    corrupt.write_bytes(content)
    truncated = tmp_path / "0b1c" / names[-2] / "optimizer.safetensors"
    truncated.write_bytes(truncated.read_bytes()[:-1])

    again = whole(2, *command, variables={"DDPJOB_UID": "0b1c", "DDPJOB_ATTEMPT": "1"})
    for name in names[1:]:
        assert re.search(rf"ERROR .*{name} is corrupt .* falling back to the previous one", again.output)
    assert "resumed in epoch 2 after step 23" in again.output
    assert again.digest == first.digest
    assert "step-000000069.attempt-1" in checkpoints_in(tmp_path / "0b1c")

    finished = whole(2, *command, variables={"DDPJOB_UID": "0b1c", "DDPJOB_ATTEMPT": "2"})
    assert "Epoch" not in finished.output
    assert finished.digest == first.digest
