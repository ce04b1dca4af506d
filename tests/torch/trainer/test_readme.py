"""The scripts of the README and of the trainer's page do what these say."""

import json
import re
from pathlib import Path

import pytest
from training import TORCHRUN, Training, checkpoints_in, whole

README = Path(__file__).parents[3] / "README.md"
TRAINER = README.with_name("docs") / "trainer.md"
LAST = "\nimport os, torch.distributed as dist\ndist.is_initialized() and dist.barrier()\nos._exit(0)\n"


def script(name: str, page: Path = README) -> str:
    """The one script of a page that calls this function of the library."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if f"{name}(" in block]
    return found


def trained(program: str, folder: Path, **more: str) -> tuple[Training, dict[str, object]]:
    """What two processes printed, and the last progress of rank 0."""
    file = folder / "train.py"
    # Debian's torch may deadlock where it destroys a group that a script has not left.
    file.write_text(program + LAST)
    progress = folder / "progress.json"
    done = whole(2, str(file), variables={**TORCHRUN, "DDPJOB_PROGRESS_FILE": str(progress), **more})
    return done, json.loads(progress.read_text())


def test_the_whole_script_of_at_most_ten_lines_trains_saves_and_resumes(tmp_path: Path) -> None:
    program = script("train")
    calls = [line for line in program[program.index("train(\n") :].splitlines() if line]
    assert len(calls) + 1 <= 10, "the import and the call"
    done, progress = trained(program, tmp_path, DDPJOB_CHECKPOINT_PATH=str(tmp_path / "uid"))
    assert "[CPU1] Epoch 3 | Batchsize: 32 | Steps: 16" in done.output
    assert (progress["step"], progress["totalSteps"], progress["finished"]) == (48, 48, True)
    assert checkpoints_in(tmp_path / "uid")[-1] == "step-000000048.attempt-0"
    longer = program.replace("total_epochs=3", "total_epochs=4")
    assert longer != program
    again, progress = trained(longer, tmp_path, DDPJOB_CHECKPOINT_PATH=str(tmp_path / "uid"))
    assert "resumed in epoch 4 after step 48" in again.output
    assert progress["step"] == 64


def test_a_script_that_joins_the_group_itself_shows_the_accuracy_of_all_ranks(tmp_path: Path) -> None:
    done, progress = trained(script("group.sum", TRAINER), tmp_path)
    assert (progress["step"], progress["totalSteps"], progress["finished"]) == (48, 48, True)
    assert 0.3 < progress["accuracy"] <= 1
    assert len(re.findall(r"accuracy 0\.\d{4}", done.output)) == 3


def test_two_calls_show_the_progress_of_a_loop_of_ones_own(tmp_path: Path) -> None:
    program = script("report_progress")
    assert (program.count("report_progress("), program.count("progress.step(")) == (1, 1)
    _, progress = trained(program, tmp_path)
    assert (progress["epoch"], progress["step"], progress["totalSteps"]) == (1, 50, 50)
    assert progress["finished"] is True
    assert isinstance(progress["loss"], float)
    assert isinstance(progress["samplesPerSecond"], float)


def test_a_script_that_knows_only_torchrun_needs_neither(tmp_path: Path) -> None:
    program = script("report_progress")
    without = "\n".join(line for line in program.splitlines() if "progress" not in line)
    file = tmp_path / "train.py"
    file.write_text(without + LAST)
    whole(2, str(file), variables=TORCHRUN)


@pytest.mark.parametrize("argument", ["epochs=0", "steps_per_epoch=0", "log_every=0"])
def test_counts_that_cannot_be_are_named_and_end_no_training(argument: str, caplog: pytest.LogCaptureFixture) -> None:
    from ddpjob_trainer import report_progress  # noqa: PLC0415 needs torch

    name = argument.partition("=")[0]
    given = {"epochs": 1, "steps_per_epoch": 1, name: 0}
    progress = report_progress(**given)
    progress.step(1.0)
    assert f"no progress is reported: ValueError: {name} must be at least 1, not 0" in caplog.text
