"""What checkpoints hold, in one process."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402

from ddpjob_trainer.checkpointing.ancestry import NothingToResumeError  # noqa: E402
from ddpjob_trainer.checkpointing.checkpoints import Checkpoints, MisfitError, SaveError  # noqa: E402
from ddpjob_trainer.checkpointing.snapshot import TrainingState  # noqa: E402
from ddpjob_trainer.checkpointing.storage import MANIFEST, CheckpointFolder, ResumeError  # noqa: E402
from ddpjob_trainer.data.position import Position  # noqa: E402
from ddpjob_trainer.process.environment import MisuseError, parse_environment  # noqa: E402
from ddpjob_trainer.process.group import Group  # noqa: E402


def saved(folder: Path, group: Group) -> Checkpoints:
    return Checkpoints(CheckpointFolder(folder), group)


def trained(model: nn.Module) -> TrainingState:
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    return TrainingState(model, optimizer, scheduler)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.bfloat16))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(numbers)) * self.scale


def test_a_checkpoint_restores_model_optimizer_and_scheduler_also_with_tied_weights(
    tmp_path: Path, group: Group
) -> None:
    torch.manual_seed(1)
    state = trained(Tied())
    saved(tmp_path, group).save(state, Position(1, 2, 3))
    fresh = trained(Tied())
    assert saved(tmp_path, group).resume(fresh) == Position(1, 2, 3)
    for part in ("model", "optimizer", "scheduler"):
        assert repr(getattr(fresh, part).state_dict()) == repr(getattr(state, part).state_dict())
    (folder,) = tmp_path.iterdir()
    assert torch.equal(load_file(folder / "model.safetensors")["first.weight"], state.model.first.weight)
    assert b"pickle" not in b"".join(file.read_bytes() for file in folder.iterdir())


def test_without_a_checkpoint_a_training_starts_from_the_beginning(tmp_path: Path, group: Group) -> None:
    assert saved(tmp_path / "none", group).resume(trained(Tied())) is None
    assert Checkpoints.of_job(group) is None


def of_job(base: Path, group: Group, name: str, **more: str) -> Checkpoints:
    variables = {"DDPJOB_NAME": name, "DDPJOB_NAMESPACE": "team", "DDPJOB_UID": f"uid-of-{name}"}
    path = {"DDPJOB_CHECKPOINT_PATH": str(base / variables["DDPJOB_UID"])}
    found = Checkpoints.of_job(replace(group, environment=parse_environment({**variables, **path, **more})))
    assert found is not None
    return found


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_job_continues_an_older_one_until_it_has_a_checkpoint_of_its_own(tmp_path: Path, group: Group) -> None:
    first = of_job(tmp_path, group, "first")
    first.save(trained(nn.Linear(4, 2)), Position(0, 4, 2))
    first.save(trained(nn.Linear(4, 2)), Position(1, 0, 3))
    before = contents(tmp_path)
    second = of_job(tmp_path, group, "second", DDPJOB_RESUME_FROM="first", DDPJOB_CHECKPOINT_KEEP_LAST="1")
    assert second.resume(trained(nn.Linear(4, 2))) == Position(1, 0, 3)
    second.save(trained(nn.Linear(4, 2)), Position(1, 4, 4))
    second.save(trained(nn.Linear(4, 2)), Position(1, 8, 5))
    assert second.resume(trained(nn.Linear(4, 2))) == Position(1, 8, 5)
    assert contents(tmp_path / "uid-of-first") == before
    assert len([*(tmp_path / "uid-of-second").glob("step-*")]) == 1


def test_of_an_older_job_the_newest_sound_checkpoint_is_taken(tmp_path: Path, group: Group) -> None:
    first = of_job(tmp_path, group, "first")
    for step in (2, 3):
        first.save(trained(nn.Linear(4, 2)), Position(1, 0, step))
    (newest,) = tmp_path.glob("*/step-*3.attempt-0/model.safetensors")
    newest.write_bytes(b"")
    resuming = of_job(tmp_path, group, "second", DDPJOB_RESUME_FROM="first")
    assert resuming.resume(trained(nn.Linear(4, 2))) == Position(1, 0, 2)


def test_where_there_is_nothing_to_continue_nothing_is_trained_from_scratch(tmp_path: Path, group: Group) -> None:
    of_job(tmp_path, group, "first").save(trained(nn.Linear(4, 2)), Position(1, 0, 3))
    for file in tmp_path.glob("*/step-*/model.safetensors"):
        file.unlink()
    with pytest.raises(NothingToResumeError, match=r"'first' has no intact checkpoint .* checkpoints there: first"):
        of_job(tmp_path, group, "second", DDPJOB_RESUME_FROM="first").resume(trained(nn.Linear(4, 2)))
    with pytest.raises(MisuseError, match="DDPJOB_RESUME_FROM needs DDPJOB_UID"):
        Checkpoints.of_job(replace(group, environment=parse_environment({"DDPJOB_RESUME_FROM": "first"})))


NO_TENSORS = {
    "no header": b"",
    "a header that is not JSON": b"\x08" + b"\0" * 7 + b"not JSON",
    "a header longer than the file": b"\xff" * 8 + b"{}",
    "more tensor than file": (
        (HEADER := b'{"weight":{"dtype":"F32","shape":[9999999],"data_offsets":[0,39999996]}}')
        and len(HEADER).to_bytes(8, "little") + HEADER
    ),
    "no file": None,
}


@pytest.mark.parametrize("content", NO_TENSORS.values(), ids=list(NO_TENSORS))
@pytest.mark.parametrize("older", [True, False])
def test_a_checkpoint_whose_sums_are_right_and_whose_files_hold_no_tensors_is_passed_over_and_named(
    tmp_path: Path, group: Group, content: bytes | None, caplog: pytest.LogCaptureFixture, *, older: bool
) -> None:
    state = trained(nn.Linear(4, 2))
    for step in (2, 3) if older else (3,):
        saved(tmp_path, group).save(state, Position(1, 0, step))
    newest = tmp_path / "step-000000003.attempt-0"
    (newest / "model.safetensors").unlink()
    if content is not None:
        (newest / "model.safetensors").write_bytes(content)
    sums = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in newest.iterdir() if file.name != MANIFEST
    }
    manifest = json.loads((newest / MANIFEST).read_text())
    (newest / MANIFEST).write_text(json.dumps({**manifest, "sha256": sums}))
    with caplog.at_level("ERROR"):
        if older:
            assert saved(tmp_path, group).resume(trained(nn.Linear(4, 2))) == Position(1, 0, 2)
        else:
            with pytest.raises(ResumeError, match=r"none of the 1 checkpoint\(s\) in .* is intact"):
                saved(tmp_path, group).resume(trained(nn.Linear(4, 2)))
    assert "step-000000003.attempt-0 is skipped: model.safetensors: " in caplog.text


def test_a_checkpoint_of_another_model_is_refused_with_a_message(tmp_path: Path, group: Group) -> None:
    saved(tmp_path, group).save(trained(Tied()), Position(1, 0, 3))
    with pytest.raises(MisfitError, match="does not match this model"):
        saved(tmp_path, group).resume(trained(nn.Linear(4, 2)))


def test_state_that_needs_pickle_is_refused_and_names_its_place(tmp_path: Path, group: Group) -> None:
    state = trained(nn.Linear(4, 2))
    state.optimizer.param_groups[0]["hook"] = print
    with pytest.raises(SaveError, match=r"optimizer\.param_groups\.0\.hook is a builtin_function_or_method"):
        saved(tmp_path, group).save(state, Position())


def test_where_no_checkpoint_is_sound_or_of_this_format_nothing_is_trained_from_scratch(
    tmp_path: Path, group: Group
) -> None:
    state = trained(nn.Linear(4, 2))
    for step in (1, 2):
        saved(tmp_path, group).save(state, Position(1, 0, step))
    newest = tmp_path / "step-000000002.attempt-0" / MANIFEST
    manifest = json.loads(newest.read_text())
    manifest["content"]["format"] = 99
    newest.write_text(json.dumps(manifest))
    with pytest.raises(ResumeError, match=r"step-000000002.attempt-0 has format 99, but this library reads 1: resume "):
        saved(tmp_path, group).resume(state)
    for folder in tmp_path.iterdir():
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ResumeError, match=r"none of the 2 checkpoint\(s\) in .* is intact: move them away to train"):
        saved(tmp_path, group).resume(state)


def test_a_volume_that_takes_no_files_fails_the_save(tmp_path: Path, group: Group) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="no checkpoint at step 3"):
        saved(tmp_path / "file", group).save(trained(nn.Linear(4, 2)), Position(1, 0, 3))
